// The log-decay of Kimi Delta Attention, per key channel, always in the accurate type.
//   Bounded  (Kimi K3, arXiv:2607.24653, eq. 5):   g = lower_bound * sigmoid(exp(a_log[h]) * (z + dt_bias))
//   Softplus (Kimi Linear, arXiv:2510.26692):      g = -exp(a_log[h]) * softplus(z + dt_bias)
// The bound is a re-parameterisation and not a clamp: with lower_bound = -5 the sum over 16 tokens stays above -80, so
// the reciprocal decay of a 16-row tile fits into bf16's range and every tile is a dense matrix product.
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

enum class DecayKind : uint8_t { Bounded, Softplus };

struct DecayGateForward {
  TensorView z;        // [tokens, heads, head_dim]
  TensorView a_log;    // [heads], accurate type
  TensorView dt_bias;  // [heads * head_dim], accurate type
  DecayKind kind = DecayKind::Bounded;
  double lower_bound = -5;  // Bounded only; in [-5, 0)
  TensorView g;             // [tokens, heads, head_dim], accurate type, overwritten
};
void decay_gate_forward(ExecContext& ctx, const DecayGateForward& op);

struct DecayGateBackward {
  TensorView dg;       // [tokens, heads, head_dim], accurate type
  TensorView z;        // [tokens, heads, head_dim]
  TensorView a_log;    // [heads]
  TensorView dt_bias;  // [heads * head_dim]
  DecayKind kind = DecayKind::Bounded;
  double lower_bound = -5;
  TensorView dz;        // [tokens, heads, head_dim], overwritten
  TensorView da_log;    // [heads], accumulated
  TensorView ddt_bias;  // [heads * head_dim], accumulated
};
void decay_gate_backward(ExecContext& ctx, const DecayGateBackward& op);

}  // namespace longhaul
