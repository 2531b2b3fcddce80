// Output normalisation and gate of Kimi Delta Attention (Kimi K3, arXiv:2607.24653, eq. 6):
// y = o * rsqrt(mean_head(o^2) + eps) * scale * sigmoid(gate), one scale shared by all heads.
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct GatedRmsNormForward {
  TensorView o;      // [tokens, heads, head_dim]
  TensorView scale;  // [head_dim], accurate type
  TensorView gate;   // [tokens, heads * head_dim], logits
  double eps = 1e-5;
  TensorView y;        // [tokens, heads * head_dim]
  TensorView inv_rms;  // [tokens, heads], accurate type; saved
};
void gated_rms_norm_forward(ExecContext& ctx, const GatedRmsNormForward& op);

struct GatedRmsNormBackward {
  TensorView dy;       // [tokens, heads * head_dim]
  TensorView o;        // [tokens, heads, head_dim]
  TensorView scale;    // [head_dim]
  TensorView gate;     // [tokens, heads * head_dim]
  TensorView inv_rms;  // [tokens, heads]
  TensorView d_o;      // [tokens, heads, head_dim], overwritten
  TensorView dgate;    // [tokens, heads * head_dim], overwritten
  TensorView dscale;   // [head_dim], accumulated
};
void gated_rms_norm_backward(ExecContext& ctx, const GatedRmsNormBackward& op);

}  // namespace longhaul
