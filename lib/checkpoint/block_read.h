// Reads a block of a piece that lies contiguously, row-major, in a file: rows that are neighbours are read together, and what
// lies between the rows of a block cut by columns is read along with them where that costs less than asking for each row.
#pragma once

#include <cstdint>
#include <span>

#include "storage/descriptor.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct FileBlock {
  int64_t file_offset = 0;                      // where the piece begins
  Shape piece;                                  // its shape
  std::span<const int64_t> offset;              // of the block in it
  Shape count;                                  // of the block
  std::span<const int64_t> destination_offset;  // of the block in the destination
};

// Exactly as many bytes as `bytes` holds. CheckpointError where the file ends before.
void read_bytes(const FileDescriptor& file, int64_t offset, std::span<std::byte> bytes);

// Into the block of `destination`, a contiguous CPU tensor of the piece's type. CheckpointError where the file ends before.
void read_from_file(const FileDescriptor& file, const FileBlock& block, const TensorView& destination);

}  // namespace longhaul
