// The CPU version of mla_pack.h; arguments are checked by the caller.
#pragma once

#include "kernels/mla_pack/mla_pack.h"

namespace longhaul::cpu {

void mla_pack_forward(const MlaPackForward& op);
void mla_pack_backward(const MlaPackBackward& op);

}  // namespace longhaul::cpu
