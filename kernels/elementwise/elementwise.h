// Small operations without a folder of their own: fill, copy with conversion, add, sums, random initialisation.
#pragma once

#include "base/philox.h"
#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

// Every element of a contiguous tensor becomes `value` (converted to its type).
void fill(ExecContext& ctx, TensorView x, double value);
// destination = source, converting between float types; same shape; rows may be strided.
void copy(ExecContext& ctx, TensorView source, TensorView destination);
// y += x, contiguous, same shape; types may differ (accumulates in y's type).
void add(ExecContext& ctx, TensorView x, TensorView y);
// x *= factor, contiguous.
void scale(ExecContext& ctx, TensorView x, double factor);
// sum_of_squares[0] += sum x^2, f64 [1]; summed in double in a fixed order (blocks of 1024).
void add_sum_of_squares(ExecContext& ctx, TensorView x, TensorView sum_of_squares);
// Element i becomes mean + stddev * normal(first_index + i) of the stream.
void fill_normal(ExecContext& ctx, TensorView x, RandomStream stream, double mean, double stddev, int64_t first_index = 0);

}  // namespace longhaul
