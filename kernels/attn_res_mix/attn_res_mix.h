// The mix of Attention Residuals over its sources (arXiv:2603.15031, eq. 1-6; Kimi K3, eq. 8-10):
//   s_i = <query, norm_scale * v_i * rsqrt(mean(v_i^2) + eps)>;  p = softmax_i(s);  y = sum_i p_i v_i
// per token, over the sources v_i; values enter un-normalised and there is no temperature. Accurate type inside.
#pragma once

#include <span>

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct AttnResMixForward {
  std::span<const TensorView> sources;  // each [tokens, hidden]; at least one
  TensorView norm_scale;                // [hidden], gamma
  TensorView query;                     // [hidden], w
  double eps = 1e-5;
  TensorView y;  // [tokens, hidden]
};
void attn_res_mix_forward(ExecContext& ctx, const AttnResMixForward& op);

// Recomputes norms, scores and probabilities from the sources.
struct AttnResMixBackward {
  TensorView dy;                         // [tokens, hidden]
  std::span<const TensorView> sources;   // each [tokens, hidden]
  TensorView norm_scale;                 // [hidden]
  TensorView query;                      // [hidden]
  double eps = 1e-5;
  std::span<const TensorView> dsources;  // each [tokens, hidden], accurate type, ACCUMULATED: a block representation
                                         // collects gradients from all later sites
  TensorView dnorm_scale;                // [hidden], accumulated
  TensorView dquery;                     // [hidden], accumulated
};
void attn_res_mix_backward(ExecContext& ctx, const AttnResMixBackward& op);

}  // namespace longhaul
