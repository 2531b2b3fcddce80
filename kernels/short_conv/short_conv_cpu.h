// The CPU version of short_conv.h; arguments are checked by the caller.
#pragma once

#include "kernels/short_conv/short_conv.h"

namespace longhaul::cpu {

struct ShortConvScratch {
  TensorView taps;   // [width, channels]: the weight by tap, so that loops run over channels
  TensorView dtaps;  // f64 [width, channels]
  TensorView dsum;   // [channels]: gradient of one token's sum before SiLU
};

void short_conv_forward(const ShortConvForward& op, const TensorView& taps);
void short_conv_backward(const ShortConvBackward& op, const ShortConvScratch& scratch);

}  // namespace longhaul::cpu
