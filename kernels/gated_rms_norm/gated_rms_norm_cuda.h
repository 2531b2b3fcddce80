// The CUDA version of gated_rms_norm.h; arguments are checked by the caller.
#pragma once

#include "kernels/gated_rms_norm/gated_rms_norm.h"

namespace longhaul::cuda {

void gated_rms_norm_forward(ExecContext& ctx, const GatedRmsNormForward& op);
// `partials`: take_partials(tokens * heads, head_dim).
void gated_rms_norm_backward(ExecContext& ctx, const GatedRmsNormBackward& op, const TensorView& partials);

}  // namespace longhaul::cuda
