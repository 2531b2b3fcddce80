// The CPU reference of attn_res_mix.h, for arguments that were validated there. Scratch comes from the caller.
#pragma once

#include "kernels/attn_res_mix/attn_res_mix.h"

namespace longhaul::cpu {

// Temporary memory of one call, the same in planning and execution.
struct AttnResMixScratch {
  TensorView folded;         // [hidden], norm_scale * query
  TensorView probabilities;  // [sources], of the token at hand
  TensorView scores;         // [sources]
  TensorView inv_rms;        // [sources]
  TensorView dfolded;        // f64 [hidden]; backward only
};

void attn_res_mix_forward(const AttnResMixForward& op, const AttnResMixScratch& scratch);
void attn_res_mix_backward(const AttnResMixBackward& op, const AttnResMixScratch& scratch);

}  // namespace longhaul::cpu
