// The CPU version of gated_rms_norm.h; arguments are checked by the caller.
#pragma once

#include "kernels/gated_rms_norm/gated_rms_norm.h"

namespace longhaul::cpu {

struct GatedRmsNormScratch {
  TensorView dscale_sums;  // f64 [head_dim]
  TensorView dnormalised;  // [head_dim]: gradient of one head's o / rms
};

void gated_rms_norm_forward(const GatedRmsNormForward& op);
void gated_rms_norm_backward(const GatedRmsNormBackward& op, const GatedRmsNormScratch& scratch);

}  // namespace longhaul::cpu
