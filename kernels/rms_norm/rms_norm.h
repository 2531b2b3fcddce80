// Root-mean-square normalisation over the last dimension (Zhang and Sennrich, arXiv:1910.07467):
// y = x * rsqrt(mean(x^2) + eps) * scale.
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct RmsNormForward {
  TensorView x;      // [rows, dim]; rows may be strided
  TensorView scale;  // [dim]
  double eps = 1e-5;
  TensorView y;        // [rows, dim]
  TensorView inv_rms;  // [rows], accurate type; saved for backward
};
void rms_norm_forward(ExecContext& ctx, const RmsNormForward& op);

struct RmsNormBackward {
  TensorView dy;       // [rows, dim]
  TensorView x;        // [rows, dim]; rows may be strided
  TensorView scale;    // [dim]
  TensorView inv_rms;  // [rows]
  TensorView dx;       // [rows, dim], overwritten; rows may be strided
  TensorView dscale;   // [dim], gradient_type, accumulated
};
void rms_norm_backward(ExecContext& ctx, const RmsNormBackward& op);

}  // namespace longhaul
