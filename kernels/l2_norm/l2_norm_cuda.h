// The CUDA version of l2_norm.h; arguments are checked by the caller.
#pragma once

#include "kernels/l2_norm/l2_norm.h"

namespace longhaul::cuda {

void l2_norm_forward(ExecContext& ctx, const L2NormForward& op);
void l2_norm_backward(ExecContext& ctx, const L2NormBackward& op);

}  // namespace longhaul::cuda
