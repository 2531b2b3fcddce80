// The CUDA version of sigmoid.h; arguments are checked by the caller.
#pragma once

#include "kernels/sigmoid/sigmoid.h"

namespace longhaul::cuda {

void sigmoid_forward(ExecContext& ctx, const SigmoidForward& op);
void sigmoid_backward(ExecContext& ctx, const SigmoidBackward& op);

}  // namespace longhaul::cuda
