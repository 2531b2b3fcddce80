// One token of Kimi Delta Attention for each of some sequences, whose states are updated in place: what generation does between
// prefills. The arithmetic is that of the recurrence (Kimi Linear, arXiv:2510.26692, eq. 1):
//   S <- Diag(e^{g}) S;   S <- S + beta k (v - S^T k)^T;   o = S^T (scale * q)
// Gates may be bounded or not. A state is what kda_forward gives as final_state and takes as initial_state.
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct KdaDecode {
  TensorView q;      // [sequences, heads, key_dim], L2-normalised
  TensorView k;      // [sequences, heads, key_dim], L2-normalised
  TensorView v;      // [sequences, heads, value_dim]
  TensorView g;      // [sequences, heads, key_dim], log-decay <= 0, accurate type
  TensorView beta;   // [sequences, heads], accurate type
  double scale = 1;  // usually key_dim^-1/2
  TensorView state;  // [sequences, heads, key_dim, value_dim], accurate type, updated
  TensorView o;      // [sequences, heads, value_dim]
};
void kda_decode(ExecContext& ctx, const KdaDecode& op);

}  // namespace longhaul
