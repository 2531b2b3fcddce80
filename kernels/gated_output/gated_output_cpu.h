// The CPU version of gated_output.h; arguments are checked by the caller.
#pragma once

#include "kernels/gated_output/gated_output.h"

namespace longhaul::cpu {

void gated_output_forward(const GatedOutputForward& op);
void gated_output_backward(const GatedOutputBackward& op);

}  // namespace longhaul::cpu
