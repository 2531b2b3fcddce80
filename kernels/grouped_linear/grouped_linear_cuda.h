// The CUDA version of grouped_linear.h; arguments are checked by the caller, but not the values of offsets. Nothing waits for
// the host: blocks find their expert from the offsets on the device.
#pragma once

#include "kernels/grouped_linear/grouped_linear.h"

namespace longhaul::cuda {

// Which matrix instructions bf16 goes through: those of a warpgroup where chip, build and sizes allow, or always those of a warp.
enum class TensorCores : uint8_t { Best, Warp };

void grouped_linear_forward(ExecContext& ctx, const GroupedLinearForward& op, TensorCores cores = TensorCores::Best);
void grouped_linear_backward(ExecContext& ctx, const GroupedLinearBackward& op, TensorCores cores = TensorCores::Best);

}  // namespace longhaul::cuda
