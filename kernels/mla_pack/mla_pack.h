// Assembles the keys of multi-head latent attention: each head's own part beside a part shared by all heads
// (DeepSeek-V2, arXiv:2405.04434, without rotation as in Kimi K3). Backward sums the shared part over heads.
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct MlaPackForward {
  TensorView k_heads;   // [tokens, heads, nope_dim]; tokens and heads may be strided
  TensorView k_shared;  // [tokens, shared_dim]; tokens may be strided
  TensorView k;         // [tokens, heads, nope_dim + shared_dim]
};
void mla_pack_forward(ExecContext& ctx, const MlaPackForward& op);

struct MlaPackBackward {
  TensorView dk;         // [tokens, heads, nope_dim + shared_dim]
  TensorView dk_heads;   // [tokens, heads, nope_dim], overwritten; may be strided
  TensorView dk_shared;  // [tokens, shared_dim], overwritten; may be strided
};
void mla_pack_backward(ExecContext& ctx, const MlaPackBackward& op);

}  // namespace longhaul
