// Causal attention on the tensor cores of Hopper, for bf16: see attention_warpgroup.cuh. attention_forward and
// attention_backward of attention_cuda.h turn to it where it fits.
#pragma once

#include "kernels/attention/attention_cuda.h"

namespace longhaul::cuda {

// The chip, the build and the widths allow it, and rows are aligned for 16-byte copies.
[[nodiscard]] bool fits_warpgroup(ExecContext& ctx, const AttentionForward& op);
[[nodiscard]] bool fits_warpgroup(ExecContext& ctx, const AttentionBackward& op);

void attention_forward_warpgroup(ExecContext& ctx, const AttentionForward& op, const TensorView& tile_starts);
// `d_o` in bf16; `delta` is <d_o, o>.
void attention_backward_warpgroup(ExecContext& ctx, const AttentionBackward& op, const TensorView& d_o, const AttentionScratch& scratch);

}  // namespace longhaul::cuda
