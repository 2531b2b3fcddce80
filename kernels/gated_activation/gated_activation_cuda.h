// The CUDA version of gated_activation.h; arguments are checked by the caller.
#pragma once

#include "kernels/gated_activation/gated_activation.h"

namespace longhaul::cuda {

void gated_activation_forward(ExecContext& ctx, const GatedActivationForward& op);
void gated_activation_backward(ExecContext& ctx, const GatedActivationBackward& op);

}  // namespace longhaul::cuda
