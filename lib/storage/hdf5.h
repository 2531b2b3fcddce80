// Tensors in HDF5 files: create and open with the settings Longhaul needs, write and read whole tensors or blocks,
// attributes, and virtual datasets that present pieces of several files as one tensor. A serial HDF5 is enough.
//
// Types in a file are little-endian f64, f32, i64, i32, u8. HDF5 before version 2 has no bfloat16: it is stored as u16
// with the attribute dtype = "bf16". Failures are CheckpointErrors with the file, the dataset and HDF5's explanation.
// Tensors are contiguous and in CPU memory. HDF5 serialises calls from several threads only where it was built
// thread-safe, as on Debian and Ubuntu.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/hdf5_handle.h"
#include "tensor/tensor_view.h"

namespace longhaul::hdf5 {

// Locks are asked for and their absence on a file system is ignored; the variable HDF5_USE_FILE_LOCKING overrides this. A
// file that another process holds is an error at once, never a wait. Closing a file closes all that is open in it.
[[nodiscard]] File create_file(const std::filesystem::path& path);  // replaces an existing file
[[nodiscard]] File open_file(const std::filesystem::path& path);    // read only

// --- datasets; `name` may have groups in it ("model/layers.0.weight"), which are created ---

// Creates the dataset without writing it; contiguous, so that it lies in the file as it does in memory.
[[nodiscard]] Dataset create_dataset(const File& file, std::string_view name, const TensorSpec& spec);

// --- compressed datasets: chunks in the form of storage/chunk_codec.h ---
inline constexpr int kZstdFilter = 32015;  // in the HDF Group's register of filters
// For this process, if no plugin has done so; needed before such a dataset is created or read by HDF5.
void register_zstd_filter();
// Of chunks of `chunk`, the last ones of a dimension reaching beyond the tensor. Not for scalars and tensors without elements.
[[nodiscard]] Dataset create_compressed_dataset(const File& file, std::string_view name, const TensorSpec& spec, const Shape& chunk);
struct FilePlace {
  int64_t file_offset = 0;
  int64_t bytes = 0;
};
// One chunk, encoded by ChunkCodec, that begins at element `offset`; where it lies in the file.
FilePlace write_chunk(const Dataset& dataset, std::span<const int64_t> offset, std::span<const std::byte> stored);

void write_dataset(const File& file, std::string_view name, const TensorView& tensor);
// `block` into the dataset at `offset`, one number for each dimension.
void write_block(const Dataset& dataset, std::span<const int64_t> offset, const TensorView& block);

[[nodiscard]] bool has_object(const File& file, std::string_view name);
[[nodiscard]] Dataset open_dataset(const File& file, std::string_view name);
[[nodiscard]] TensorSpec dataset_spec(const Dataset& dataset);
// All of it; dtype and shape must be equal.
void read_dataset(const File& file, std::string_view name, const TensorView& destination);
// The elements from `offset` on, `count` of them in each dimension, into the same-sized block of `destination` that
// begins at `destination_offset`. dtype must be equal.
struct BlockRead {
  std::span<const int64_t> offset;
  std::span<const int64_t> destination_offset;
  Shape count;
};
void read_block(const Dataset& dataset, const BlockRead& block, const TensorView& destination);
// Where the dataset's bytes begin in the file, or -1 when it has none (no elements).
[[nodiscard]] int64_t byte_offset(const Dataset& dataset);

// --- virtual datasets ---
struct VirtualPiece {
  std::string file;     // relative to the file that holds the virtual dataset
  std::string dataset;  // of exactly `shape`
  std::vector<int64_t> offset;  // in the whole tensor
  Shape shape;
};
// Where a source file is missing, HDF5 reads the fill value without an error: NaN for floating point, the lowest value
// for signed integers, 255 for u8.
void write_virtual_dataset(const File& file, std::string_view name, const TensorSpec& whole,
                           std::span<const VirtualPiece> pieces);

// --- attributes of the object at `name` ("/" for the file itself) ---
void write_attribute(const File& file, std::string_view name, std::string_view attribute, std::string_view value);
void write_attribute(const File& file, std::string_view name, std::string_view attribute, int64_t value);
void write_attribute(const File& file, std::string_view name, std::string_view attribute, double value);
[[nodiscard]] bool has_attribute(const File& file, std::string_view name, std::string_view attribute);
[[nodiscard]] std::string read_string_attribute(const File& file, std::string_view name, std::string_view attribute);
[[nodiscard]] int64_t read_i64_attribute(const File& file, std::string_view name, std::string_view attribute);
[[nodiscard]] double read_f64_attribute(const File& file, std::string_view name, std::string_view attribute);

// "1.10.8"
[[nodiscard]] std::string library_version();

}  // namespace longhaul::hdf5
