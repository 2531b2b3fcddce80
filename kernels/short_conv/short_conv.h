// Depthwise causal convolution over time followed by SiLU, reset at document starts (Kimi Linear, arXiv:2510.26692):
// y[t,c] = SiLU( sum_j weight[c,j] * x[t - (width-1) + j, c] ), terms before the document's start left out.
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct ShortConvForward {
  TensorView x;           // [tokens, channels]
  TensorView weight;      // [channels, width], accurate type, oldest tap first
  TensorView cu_seqlens;  // i64 [documents + 1], from 0 to tokens
  TensorView y;           // [tokens, channels]
};
void short_conv_forward(ExecContext& ctx, const ShortConvForward& op);

// Recomputes the sum before SiLU from x.
struct ShortConvBackward {
  TensorView dy;          // [tokens, channels], compute or accurate type
  TensorView x;           // [tokens, channels]
  TensorView weight;      // [channels, width]
  TensorView cu_seqlens;  // i64 [documents + 1]
  TensorView dx;          // [tokens, channels], overwritten
  TensorView dweight;     // [channels, width], accumulated
};
void short_conv_backward(ExecContext& ctx, const ShortConvBackward& op);

}  // namespace longhaul
