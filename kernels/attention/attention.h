// Causal softmax attention within each packed document: o = softmax(scale q k^T) v, with log-sum-exp saved.
// Heads of q, k and v correspond one to one; key and value widths may differ. The output is kept in the accurate type,
// which avoids the biased rounding of blockwise attention (Kimi K3, arXiv:2607.24653, section 2.1.2).
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct AttentionForward {
  TensorView q;           // [tokens, heads, key_dim]; tokens and heads may be strided, innermost stride 1
  TensorView k;           // [tokens, heads, key_dim]; may be strided
  TensorView v;           // [tokens, heads, value_dim]; may be strided
  TensorView cu_seqlens;  // i64 [documents + 1]
  double scale = 1;
  TensorView o;    // [tokens, heads, value_dim], accurate type
  TensorView lse;  // [tokens, heads], accurate type; saved
};
void attention_forward(ExecContext& ctx, const AttentionForward& op);

struct AttentionBackward {
  TensorView d_o;         // [tokens, heads, value_dim], compute or accurate type
  TensorView q, k, v;     // as in forward
  TensorView o, lse;      // as written by forward
  TensorView cu_seqlens;  // i64 [documents + 1]
  double scale = 1;
  TensorView dq, dk;  // [tokens, heads, key_dim], overwritten; may be strided
  TensorView dv;      // [tokens, heads, value_dim], overwritten; may be strided
};
void attention_backward(ExecContext& ctx, const AttentionBackward& op);

}  // namespace longhaul
