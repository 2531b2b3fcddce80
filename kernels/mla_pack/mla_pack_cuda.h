// The CUDA version of mla_pack.h; arguments are checked by the caller.
#pragma once

#include "kernels/mla_pack/mla_pack.h"

namespace longhaul::cuda {

void mla_pack_forward(ExecContext& ctx, const MlaPackForward& op);
void mla_pack_backward(ExecContext& ctx, const MlaPackBackward& op);

}  // namespace longhaul::cuda
