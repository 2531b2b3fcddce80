// The chunks of a compressed piece: where each lies in the piece, and reading blocks of it without HDF5.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/manifest.h"
#include "storage/chunk_codec.h"
#include "storage/descriptor.h"

namespace longhaul {

// Why the chunks of `piece` cannot be those of a tensor of this type; empty when they can.
[[nodiscard]] std::string chunks_problem(const StoredPiece& piece, int64_t element_bytes);

// Keeps the chunk that it read last, because neighbouring blocks share one.
class ChunkReader {
 public:
  // The block at `offset` of the piece, of `count`, to `destination_offset` of a contiguous CPU tensor of the piece's type.
  // CheckpointError where a chunk is damaged.
  struct Request {
    std::vector<int64_t> offset;
    Shape count;
    std::vector<int64_t> destination_offset;
  };
  void read(const FileDescriptor& file, const StoredPiece& piece, const Request& request, const TensorView& destination);

 private:
  [[nodiscard]] TensorView decoded(const FileDescriptor& file, const StoredPiece& piece, size_t number, DType dtype);

  std::string file_;          // of the chunk in values_
  int64_t file_offset_ = -1;  // of it
  std::vector<std::byte> stored_;
  std::vector<std::byte> values_;
  ChunkCodec codec_;
};

}  // namespace longhaul
