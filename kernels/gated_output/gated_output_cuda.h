// The CUDA version of gated_output.h; arguments are checked by the caller.
#pragma once

#include "kernels/gated_output/gated_output.h"

namespace longhaul::cuda {

void gated_output_forward(ExecContext& ctx, const GatedOutputForward& op);
void gated_output_backward(ExecContext& ctx, const GatedOutputBackward& op);

}  // namespace longhaul::cuda
