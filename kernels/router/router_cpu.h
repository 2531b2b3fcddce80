// The CPU reference of router.h, for arguments that were validated there.
#pragma once

#include "kernels/router/router.h"

namespace longhaul::cpu {

// `best` is scratch: accurate type [top_k + 1]; `best_index` i64 [top_k + 1].
void router_forward(const RouterForward& op, const TensorView& best, const TensorView& best_index);
void router_backward(const RouterBackward& op);

}  // namespace longhaul::cpu
