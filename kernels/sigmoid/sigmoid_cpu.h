// The CPU version of sigmoid.h; arguments are checked by the caller.
#pragma once

#include "kernels/sigmoid/sigmoid.h"

namespace longhaul::cpu {

void sigmoid_forward(const SigmoidForward& op);
void sigmoid_backward(const SigmoidBackward& op);

}  // namespace longhaul::cpu
