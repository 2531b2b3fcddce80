// The CUDA version of rms_norm.h; arguments are checked by the caller.
#pragma once

#include "kernels/rms_norm/rms_norm.h"

namespace longhaul::cuda {

void rms_norm_forward(ExecContext& ctx, const RmsNormForward& op);
// `partials`: take_partials(rows, dim).
void rms_norm_backward(ExecContext& ctx, const RmsNormBackward& op, const TensorView& partials);

}  // namespace longhaul::cuda
