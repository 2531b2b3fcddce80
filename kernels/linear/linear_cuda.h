// The CUDA version of linear.h; arguments are checked by the caller.
#pragma once

#include "kernels/linear/linear.h"

namespace longhaul::cuda {

void linear_forward(ExecContext& ctx, const LinearForward& op);
// `rounded_dy`: [tokens, out] in the compute type, needed when dy comes in the accurate type and that is another one.
void linear_backward(ExecContext& ctx, const LinearBackward& op, const TensorView& rounded_dy);

}  // namespace longhaul::cuda
