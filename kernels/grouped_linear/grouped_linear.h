// The linear maps of many experts over rows sorted by expert: rows [offsets[e], offsets[e+1]) use weight e.
// Experts may have no rows; rows beyond offsets[experts] are neither read nor written.
// Rows of x, y, dy and dx may be strided (a slice of columns of a wider tensor); the innermost stride is 1.
#pragma once

#include "device/exec_context.h"
#include "kernels/linear/linear.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct GroupedLinearForward {
  TensorView x;        // [rows, in]
  TensorView weight;   // [experts, out, in]
  TensorView offsets;  // i64 [experts + 1], ascending from 0, on the operation's device
  TensorView y;        // [rows, out]
};
void grouped_linear_forward(ExecContext& ctx, const GroupedLinearForward& op);

struct GroupedLinearBackward {
  TensorView dy;       // [rows, out]
  TensorView x;        // [rows, in]
  TensorView weight;   // [experts, out, in]
  TensorView offsets;  // i64 [experts + 1]
  TensorView dx;       // [rows, in]; absent: not computed
  TensorView dweight;  // [experts, out, in], gradient_type, accumulated; absent: not computed
  Accumulate accumulate_dx = Accumulate::Overwrite;
};
void grouped_linear_backward(ExecContext& ctx, const GroupedLinearBackward& op);

}  // namespace longhaul
