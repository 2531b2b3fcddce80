// The CPU version of elementwise.h; arguments are checked by the caller.
#pragma once

#include "kernels/elementwise/elementwise.h"

namespace longhaul::cpu {

void fill(const TensorView& x, double value);
void copy(const TensorView& source, const TensorView& destination);
void add(const TensorView& x, const TensorView& y);
void scale(const TensorView& x, double factor);
void add_sum_of_squares(const TensorView& x, const TensorView& sum_of_squares);
void fill_normal(const TensorView& x, RandomStream stream, double mean, double stddev, int64_t first_index);

}  // namespace longhaul::cpu
