// The CUDA version of short_conv.h; arguments are checked by the caller, but not the values of cu_seqlens.
#pragma once

#include "kernels/short_conv/short_conv.h"

namespace longhaul::cuda {

inline constexpr int64_t kMaxConvWidth = 8;

void short_conv_forward(ExecContext& ctx, const ShortConvForward& op);
// `partials`: take_partials(tokens, channels * width).
void short_conv_backward(ExecContext& ctx, const ShortConvBackward& op, const TensorView& partials);

}  // namespace longhaul::cuda
