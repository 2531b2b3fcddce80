// The CUDA version of attention.h; arguments are checked by the caller.
#pragma once

#include "kernels/attention/attention.h"

namespace longhaul::cuda {

inline constexpr int64_t kMaxAttentionDim = 256;  // of key_dim and of value_dim

struct AttentionScratch {
  TensorView tile_starts;  // i64 [documents + 1]: query tiles in the documents before each
  TensorView delta;        // f32 [tokens, heads]: <d_o, o>; backward only
  TensorView rounded_d_o;  // bf16 [tokens, heads, value_dim], where the compute type is bf16 and d_o comes in f32; backward only
};

void attention_forward(ExecContext& ctx, const AttentionForward& op, const AttentionScratch& scratch);
void attention_backward(ExecContext& ctx, const AttentionBackward& op, const AttentionScratch& scratch);

}  // namespace longhaul::cuda
