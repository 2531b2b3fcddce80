// The CPU version of decay_gate.h; arguments are checked by the caller.
#pragma once

#include "kernels/decay_gate/decay_gate.h"

namespace longhaul::cpu {

struct DecayGateScratch {
  TensorView a_log_terms;   // f64 [heads * head_dim]: each channel's part of da_log, summed over tokens
  TensorView dt_bias_sums;  // f64 [heads * head_dim]
};

void decay_gate_forward(const DecayGateForward& op);
void decay_gate_backward(const DecayGateBackward& op, const DecayGateScratch& scratch);

}  // namespace longhaul::cpu
