// y = o * sigmoid(gate), the output gate of multi-head latent attention (Kimi K3, arXiv:2607.24653, eq. 7).
// With the gate absent it is a conversion to the compute type (Kimi Linear has no such gate).
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct GatedOutputForward {
  TensorView o;     // [tokens, dim], accurate type
  TensorView gate;  // [tokens, dim], logits; absent: no gate
  TensorView y;     // [tokens, dim]
};
void gated_output_forward(ExecContext& ctx, const GatedOutputForward& op);

struct GatedOutputBackward {
  TensorView dy;     // [tokens, dim]
  TensorView o;      // [tokens, dim]
  TensorView gate;   // [tokens, dim]; absent: no gate
  TensorView d_o;    // [tokens, dim], accurate type, overwritten
  TensorView dgate;  // [tokens, dim], overwritten; absent without a gate
};
void gated_output_backward(ExecContext& ctx, const GatedOutputBackward& op);

}  // namespace longhaul
