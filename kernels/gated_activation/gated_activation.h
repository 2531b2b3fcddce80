// Gated activations of the feed-forward layers, in the accurate type inside:
//   SituGlu (Kimi K3, arXiv:2607.24653, eq. 12, 18, 19): beta1 tanh(g / beta1) sigmoid(g) * beta2 tanh(u / beta2)
//   SwiGlu  (Shazeer, arXiv:2002.05202):                 g sigmoid(g) * u, the limit of large betas
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

enum class ActivationKind : uint8_t { SituGlu, SwiGlu };

struct Activation {
  ActivationKind kind = ActivationKind::SituGlu;
  double beta_gate = 4;   // beta1
  double beta_up = 25;    // beta2
};

struct GatedActivationForward {
  TensorView gate;  // [rows, dim]; rows may be strided
  TensorView up;    // [rows, dim]; rows may be strided
  Activation activation;
  TensorView y;  // [rows, dim]
};
void gated_activation_forward(ExecContext& ctx, const GatedActivationForward& op);

struct GatedActivationBackward {
  TensorView dy;    // [rows, dim]
  TensorView gate;  // [rows, dim]; rows may be strided
  TensorView up;    // [rows, dim]; rows may be strided
  Activation activation;
  TensorView dgate;  // [rows, dim], overwritten; rows may be strided
  TensorView dup;    // [rows, dim], overwritten; rows may be strided
};
void gated_activation_backward(ExecContext& ctx, const GatedActivationBackward& op);

}  // namespace longhaul
