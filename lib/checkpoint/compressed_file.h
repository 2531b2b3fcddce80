// A rank file with compressed datasets. How large a chunk becomes is known only when it is compressed, so HDF5 writes them, in an
// open file; RankFileWriter uses it in place of its own writes. What lies where is told, so that reading needs no HDF5.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "storage/chunk_codec.h"
#include "storage/descriptor.h"
#include "storage/hdf5.h"

namespace longhaul {

class CompressedFile {
 public:
  // Sets aside what the values would need uncompressed, so that a full disk is noticed before anything is written.
  CompressedFile(std::filesystem::path path, int64_t values_bytes);

  // The next piece, under the name stored.dataset; `chunk` is the shape of all its parts but the last ones of a dimension.
  // Pieces of less than 4 KiB and scalars are not compressed. `stored` receives the places.
  void begin_piece(StoredPiece& stored, DType dtype, const Shape& chunk);
  // Its next part, which begins at element `offset`; all of it where it is not compressed.
  void add(StoredPiece& stored, std::span<const int64_t> offset, const TensorView& part);
  // Closes the file, brings it to the disk, and hashes it.
  [[nodiscard]] FileHash finish();

 private:
  std::filesystem::path path_;
  FileDescriptor descriptor_;  // from before the first write, so that it is told of all that fail
  int64_t handed_over_ = 0;    // bytes of the file that the disk was asked to begin with
  hdf5::File file_;
  hdf5::Dataset dataset_;
  Shape chunk_;
  ChunkCodec codec_;
  std::vector<std::byte> padded_;
};

}  // namespace longhaul
