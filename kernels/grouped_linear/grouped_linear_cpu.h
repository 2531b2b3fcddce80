// The CPU reference of grouped_linear.h, for arguments that were validated there.
#pragma once

#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/linear/linear_cpu.h"

namespace longhaul::cpu {

void grouped_linear_forward(const GroupedLinearForward& op, const LinearScratch& scratch);
void grouped_linear_backward(const GroupedLinearBackward& op, const LinearScratch& scratch);

}  // namespace longhaul::cpu
