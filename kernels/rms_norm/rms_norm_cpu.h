// The CPU version of rms_norm.h; arguments are checked by the caller.
#pragma once

#include "kernels/rms_norm/rms_norm.h"

namespace longhaul::cpu {

void rms_norm_forward(const RmsNormForward& op);
// `sums`: f64 [dim], scratch.
void rms_norm_backward(const RmsNormBackward& op, const TensorView& sums);

}  // namespace longhaul::cpu
