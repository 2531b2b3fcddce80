// See stored_chunks.h.
#include "checkpoint/stored_chunks.h"

#include <algorithm>

#include "base/cast.h"
#include "checkpoint/block_read.h"
#include "checkpoint/staging.h"

namespace longhaul {

namespace {

// Chunks in the order of the manifest: row-major.
Block chunk_block(const StoredPiece& piece, size_t number) {
  Block block{.offset = std::vector<int64_t>(static_cast<size_t>(piece.chunk_shape.rank())), .shape = {}};
  auto rest = narrow<int64_t>(number);
  for (int d = piece.chunk_shape.rank() - 1; d >= 0; --d) {
    const int64_t count = ceil_div(piece.block.shape[d], piece.chunk_shape[d]);
    block.offset[static_cast<size_t>(d)] = rest % count * piece.chunk_shape[d];
    rest /= count;
  }
  for (int d = 0; d < piece.chunk_shape.rank(); ++d) {
    block.shape.append(std::min(piece.chunk_shape[d], piece.block.shape[d] - block.offset[static_cast<size_t>(d)]));
  }
  return block;
}

// The block of `view` at `begin - origin`.
TensorView block_of(TensorView view, const std::vector<int64_t>& begin, const std::vector<int64_t>& origin, const Shape& shape) {
  for (int d = 0; d < view.rank(); ++d) {
    const int64_t at = begin[static_cast<size_t>(d)] - origin[static_cast<size_t>(d)];
    view = view.slice(d, at, at + shape[d]);
  }
  return view;
}

}  // namespace

std::string chunks_problem(const StoredPiece& piece, int64_t element_bytes) {
  const Shape& chunk = piece.chunk_shape;
  if (chunk.rank() == 0 && piece.chunks.empty()) {
    return {};
  }
  if (chunk.rank() == 0 || chunk.rank() != piece.block.shape.rank()) {
    return "its chunks have another number of dimensions";
  }
  int64_t count = 1;
  for (int d = 0; d < chunk.rank(); ++d) {
    if (chunk[d] < 1 || __builtin_mul_overflow(count, ceil_div(piece.block.shape[d], chunk[d]), &count)) {
      return "its chunks have no elements";
    }
  }
  if (chunk.numel() > Staging::kBytes / element_bytes || count != narrow<int64_t>(piece.chunks.size())) {
    return fmt::format("it has {} chunks of {}, which do not fit", piece.chunks.size(), chunk.to_string());
  }
  const int64_t most = encoded_bound(chunk.numel() * element_bytes);
  const bool is_good = std::all_of(piece.chunks.begin(), piece.chunks.end(), [&](const StoredChunk& c) {
    return c.file_offset >= 0 && c.bytes >= 0 && c.bytes <= most;
  });
  return is_good ? "" : "a chunk of it lies nowhere";
}

TensorView ChunkReader::decoded(const FileDescriptor& file, const StoredPiece& piece, size_t number, DType dtype) {
  const StoredChunk& chunk = piece.chunks[number];
  const int64_t bytes = piece.chunk_shape.numel() * size_of(dtype);
  if (file_ != piece.file || file_offset_ != chunk.file_offset || narrow<int64_t>(values_.size()) != bytes) {
    file_offset_ = -1;
    stored_.resize(narrow<size_t>(chunk.bytes));
    read_bytes(file, chunk.file_offset, stored_);
    values_.resize(narrow<size_t>(bytes));
    codec_.decode(stored_, size_of(dtype), values_);
    file_ = piece.file;
    file_offset_ = chunk.file_offset;
  }
  return {values_.data(), dtype, piece.chunk_shape};
}

void ChunkReader::read(const FileDescriptor& file, const StoredPiece& piece, const Request& request, const TensorView& destination) {
  const Block wanted{.offset = request.offset, .shape = request.count};
  for (size_t number = 0; number < piece.chunks.size(); ++number) {
    const Block chunk = chunk_block(piece, number);
    Block shared;
    if (!intersect(chunk, wanted, shared)) {
      continue;
    }
    std::vector<int64_t> origin = wanted.offset;  // of the destination, in the piece
    for (size_t d = 0; d < origin.size(); ++d) {
      origin[d] -= request.destination_offset[d];
    }
    copy_strided(block_of(decoded(file, piece, number, destination.dtype()), shared.offset, chunk.offset, shared.shape),
                 block_of(destination, shared.offset, origin, shared.shape));
  }
}

}  // namespace longhaul
