// The CPU version of gated_activation.h; arguments are checked by the caller.
#pragma once

#include "kernels/gated_activation/gated_activation.h"

namespace longhaul::cpu {

void gated_activation_forward(const GatedActivationForward& op);
void gated_activation_backward(const GatedActivationBackward& op);

}  // namespace longhaul::cpu
