// Matrix products of a bias-free linear map: y = x W^T, and its two backward products.
// Rows of x, y, dy, dx may be strided (a slice of columns of a wider tensor); the innermost stride is 1.
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

enum class Accumulate : uint8_t { Overwrite, Add };

struct LinearForward {
  TensorView x;       // [tokens, in]
  TensorView weight;  // [out, in]
  TensorView y;       // [tokens, out], compute or accurate type (router logits)
  Accumulate accumulate = Accumulate::Overwrite;
};
// Errors: ShapeError.
void linear_forward(ExecContext& ctx, const LinearForward& op);

struct LinearBackward {
  TensorView dy;       // [tokens, out], compute or accurate type
  TensorView x;        // [tokens, in]
  TensorView weight;   // [out, in]
  TensorView dx;       // [tokens, in]; absent: not computed
  TensorView dweight;  // [out, in], gradient_type, always accumulated; absent: not computed
  Accumulate accumulate_dx = Accumulate::Overwrite;
};
void linear_backward(ExecContext& ctx, const LinearBackward& op);

}  // namespace longhaul
