// The router of Stable LatentMoE (Kimi K3, arXiv:2607.24653, eq. 11): sigmoid scores, selection by score + bias,
// weights from the unbiased scores of the selected experts.
//   s = sigmoid(logits);  sel = top_k(s + bias);  p_j = scaling * s_j / (sum_sel s + 1e-20)
// Ties go to the lower expert index, so the choice is deterministic. Everything is in the accurate type.
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct RouterForward {
  TensorView logits;  // [tokens, experts]
  TensorView bias;    // [experts]; of the selection only, never differentiated
  int64_t top_k = 1;
  double scaling = 1;  // routed_scaling_factor
  TensorView forced_experts;  // i32 [tokens, top_k]; present: used instead of the selection (comparisons with other programs)
  TensorView scores;   // [tokens, experts]
  TensorView experts;  // i32 [tokens, top_k], best first
  TensorView weights;  // [tokens, top_k]
  TensorView cutoff;   // [tokens]: the (top_k + 1)-th largest biased score; -infinity when top_k == experts
};
void router_forward(ExecContext& ctx, const RouterForward& op);

struct RouterBackward {
  TensorView dweights;  // [tokens, top_k]
  TensorView scores;    // [tokens, experts]
  TensorView experts;   // i32 [tokens, top_k]
  TensorView weights;   // [tokens, top_k]
  double scaling = 1;
  TensorView dlogits;  // [tokens, experts], overwritten; zero for experts not selected
};
void router_backward(ExecContext& ctx, const RouterBackward& op);

}  // namespace longhaul
