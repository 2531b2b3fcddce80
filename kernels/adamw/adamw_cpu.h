// The CPU version of adamw.h; arguments are checked by the caller.
#pragma once

#include "kernels/adamw/adamw.h"

namespace longhaul::cpu {

void adamw(const AdamW& op);

}  // namespace longhaul::cpu
