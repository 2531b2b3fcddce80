// A checkpoint is a set of named global tensors. Each rank owns blocks of them, its pieces; together the pieces of all
// ranks cover every tensor exactly once. How a tensor is cut is written down with it, so that any other layout can read it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor_view.h"

namespace longhaul {

// Fills `part` (contiguous, on the CPU) with the elements of a piece from `first` on, in row-major order.
using PieceSource = std::function<void(int64_t first, const TensorView& part)>;

// How long the values of a tensor stay as they are after a save in the background has begun.
enum class Stability : uint8_t {
  None,          // they may change as soon as begin() returns
  UntilRelease,  // until AsyncSaver::release_tensors: weights and optimizer state, which only an update changes
};

struct Piece {
  std::string name;             // "model/…", "optimizer/m/…", "balance/…"; '/' makes groups in HDF5
  Shape global_shape;           // of the whole tensor
  std::vector<int64_t> offset;  // of this block in it, one number for each dimension
  TensorView data;              // the block, in the type that is stored; strided only on the CPU
  // Where set, `data` is a view without memory, and a save asks for the elements while it writes them: for what is larger
  // than memory. Not for loading.
  PieceSource source = {};
  Stability stability = Stability::None;
};

// The whole tensor as one piece.
[[nodiscard]] Piece whole_piece(std::string name, const TensorView& data);

// Copies between a device and the host: two contiguous views of the same type and shape, one of them on the CPU. Blocks
// until done. Empty: copy_between (tensor/host_copy.h). A test puts its own here, to go this way without a GPU.
using DeviceTransfer = std::function<void(const TensorView& from, const TensorView& to)>;

// Where a block lies in a tensor.
struct Block {
  std::vector<int64_t> offset;
  Shape shape;
};
// What two blocks of one tensor share; false when that is nothing.
[[nodiscard]] bool intersect(const Block& a, const Block& b, Block& shared);
// Why `blocks` do not cover a tensor of `shape` exactly once; empty when they do.
[[nodiscard]] std::string coverage_problem(const Shape& shape, std::span<const Block> blocks);

// Calls visit(offset, part) for parts of `view` of at most `max_bytes` (at least one element), in row-major order.
// A part has the rank of the view; its elements are consecutive in the row-major order of the view.
void for_each_part(const TensorView& view, int64_t max_bytes,
                   const std::function<void(const std::vector<int64_t>& offset, const TensorView& part)>& visit);

// Copies between CPU views of the same type and shape, of which either may be strided.
void copy_strided(const TensorView& from, const TensorView& to);

}  // namespace longhaul
