// The CUDA version of attn_res_mix.h; arguments are checked by the caller.
#pragma once

#include "kernels/attn_res_mix/attn_res_mix.h"

namespace longhaul::cuda {

inline constexpr int64_t kMaxMixSources = 32;

struct AttnResMixScratch {
  TensorView partials;  // take_partials(tokens, hidden)
  TensorView dfolded;   // f32 [hidden]: gradient of norm_scale * query
};

void attn_res_mix_forward(ExecContext& ctx, const AttnResMixForward& op);
void attn_res_mix_backward(ExecContext& ctx, const AttnResMixBackward& op, const AttnResMixScratch& scratch);

}  // namespace longhaul::cuda
