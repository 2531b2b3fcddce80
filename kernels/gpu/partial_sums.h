// Weight gradients are sums over all tokens, made in two stages without atomics so that they repeat bit for bit: each block
// of the first kernel adds up its share of the tokens, and add_partial_sums adds the shares in the order of blocks.
#pragma once

#include <cstdint>
#include <string_view>

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul::cuda {

// Shares that `rows` are cut into; depends on nothing else, so that planning needs no GPU.
[[nodiscard]] constexpr int64_t partial_blocks(int64_t rows) {
  constexpr int64_t kMost = 264;  // two for each multiprocessor of a large chip
  constexpr int64_t kFewestRows = 8;
  const int64_t wanted = (rows + kFewestRows - 1) / kFewestRows;
  return wanted < 1 ? 1 : (wanted > kMost ? kMost : wanted);
}

// f32 [partial_blocks(rows), columns] from the arena.
[[nodiscard]] TensorView take_partials(Arena& scratch, std::string_view name, int64_t rows, int64_t columns);

// gradient[c] += sum over b of partials[b, c]; gradient f32 of partials.size(1) elements.
void add_partial_sums(ExecContext& ctx, const TensorView& partials, const TensorView& gradient);

}  // namespace longhaul::cuda
