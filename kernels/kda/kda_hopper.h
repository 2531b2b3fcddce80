// The CUDA version of kda.h for Hopper GPUs (compute capability 9.0): bf16, key_dim = value_dim = 64 or 128. It multiplies on
// the tensor cores and is many times faster than the general version (kda_cuda.h); cuda/README.md has the design. Arguments are checked by the caller, but not the values of cu_seqlens. Inputs must be finite.
//
// chunk_states is then a block of bytes that only kda_backward of this version understands: fp16 states and residuals with their units,
// which take at most as much room. Which version serves a call depends on the arguments that forward and
// backward share, and on the GPU.
#pragma once

#include "kernels/kda/kda.h"

namespace longhaul::cuda {

// A machine without a GPU plans as if it had this one.
[[nodiscard]] bool is_for_kda_hopper(Device device, const KdaForward& op);
[[nodiscard]] bool is_for_kda_hopper(Device device, const KdaBackward& op);

// Bytes, from sizes alone.
[[nodiscard]] TensorView take_kda_hopper_scratch(Arena& arena, const KdaForward& op);
[[nodiscard]] TensorView take_kda_hopper_scratch(Arena& arena, const KdaBackward& op);

void kda_hopper_forward(ExecContext& ctx, const KdaForward& op, const TensorView& scratch);
void kda_hopper_backward(ExecContext& ctx, const KdaBackward& op, const TensorView& scratch);

// Whether this build has the kernels and the GPU runs them; true where there is no GPU.
[[nodiscard]] bool has_kda_hopper(Device device);

}  // namespace longhaul::cuda
