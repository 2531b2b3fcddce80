// The CPU version of l2_norm.h; arguments are checked by the caller.
#pragma once

#include "kernels/l2_norm/l2_norm.h"

namespace longhaul::cpu {

void l2_norm_forward(const L2NormForward& op);
void l2_norm_backward(const L2NormBackward& op);

}  // namespace longhaul::cpu
