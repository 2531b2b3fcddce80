// The CUDA version of elementwise.h; arguments are checked by the caller.
#pragma once

#include "kernels/elementwise/elementwise.h"

namespace longhaul::cuda {

void fill(ExecContext& ctx, const TensorView& x, double value);
void copy(ExecContext& ctx, const TensorView& source, const TensorView& destination);
void add(ExecContext& ctx, const TensorView& x, const TensorView& y);
void scale(ExecContext& ctx, const TensorView& x, double factor);
// `partials`: f64 [sum_of_squares_blocks(elements)], scratch.
void add_sum_of_squares(ExecContext& ctx, const TensorView& x, const TensorView& sum_of_squares, const TensorView& partials);
void fill_normal(ExecContext& ctx, const TensorView& x, RandomStream stream, double mean, double stddev, int64_t first_index);

[[nodiscard]] constexpr int64_t sum_of_squares_blocks(int64_t elements) {
  constexpr int64_t kBlock = 16384, kMost = 1024;
  const int64_t wanted = (elements + kBlock - 1) / kBlock;
  return wanted < 1 ? 1 : (wanted > kMost ? kMost : wanted);
}

}  // namespace longhaul::cuda
