// The CPU version of linear.h; arguments are checked by the caller.
#pragma once

#include "kernels/linear/linear.h"

namespace longhaul::cpu {

void linear_forward(const LinearForward& op);
void linear_backward(const LinearBackward& op);

}  // namespace longhaul::cpu
