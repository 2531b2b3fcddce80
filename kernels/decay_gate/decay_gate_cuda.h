// The CUDA version of decay_gate.h; arguments are checked by the caller.
#pragma once

#include "kernels/decay_gate/decay_gate.h"

namespace longhaul::cuda {

struct DecayGateScratch {
  TensorView a_log_terms;   // take_partials(tokens, heads * head_dim)
  TensorView dt_bias_sums;  // the same
};

void decay_gate_forward(ExecContext& ctx, const DecayGateForward& op);
void decay_gate_backward(ExecContext& ctx, const DecayGateBackward& op, const DecayGateScratch& scratch);

}  // namespace longhaul::cuda
