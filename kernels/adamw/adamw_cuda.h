// The CUDA version of adamw.h; arguments are checked by the caller.
#pragma once

#include "kernels/adamw/adamw.h"

namespace longhaul::cuda {

void adamw(ExecContext& ctx, const AdamW& op);

}  // namespace longhaul::cuda
