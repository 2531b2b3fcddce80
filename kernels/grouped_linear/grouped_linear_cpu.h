// The CPU reference of grouped_linear.h, for arguments that were validated there.
#pragma once

#include "kernels/grouped_linear/grouped_linear.h"

namespace longhaul::cpu {

void grouped_linear_forward(const GroupedLinearForward& op);
void grouped_linear_backward(const GroupedLinearBackward& op);

}  // namespace longhaul::cpu
