// The CUDA version of grouped_linear.h; arguments are checked by the caller, but not the values of offsets. Nothing waits for
// the host: blocks find their expert from the offsets on the device.
#pragma once

#include "kernels/grouped_linear/grouped_linear.h"

namespace longhaul::cuda {

void grouped_linear_forward(ExecContext& ctx, const GroupedLinearForward& op);
void grouped_linear_backward(ExecContext& ctx, const GroupedLinearBackward& op);

}  // namespace longhaul::cuda
