// L2 normalisation of each head's vector: y = x * rsqrt(sum(x^2) + 1e-6), the sum and not the mean (Kimi Linear).
// Backward: dx = inv_norm * (dy - y <dy, y>).
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

inline constexpr double kL2NormEps = 1e-6;

struct L2NormForward {
  TensorView x;         // [tokens, heads, head_dim]
  TensorView y;         // [tokens, heads, head_dim]
  TensorView inv_norm;  // [tokens, heads], accurate type; saved
};
void l2_norm_forward(ExecContext& ctx, const L2NormForward& op);

struct L2NormBackward {
  TensorView dy;        // [tokens, heads, head_dim], compute or accurate type
  TensorView y;         // [tokens, heads, head_dim]
  TensorView inv_norm;  // [tokens, heads]
  TensorView dx;        // [tokens, heads, head_dim], overwritten
};
void l2_norm_backward(ExecContext& ctx, const L2NormBackward& op);

}  // namespace longhaul
