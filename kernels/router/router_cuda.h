// The CUDA version of router.h; arguments are checked by the caller, but not the values of forced_experts: an expert that
// does not exist becomes expert 0 with a weight of NaN, so that the loss shows it.
#pragma once

#include "kernels/router/router.h"

namespace longhaul::cuda {

inline constexpr int64_t kMaxRouterExperts = 1024;

void router_forward(ExecContext& ctx, const RouterForward& op);
void router_backward(ExecContext& ctx, const RouterBackward& op);

}  // namespace longhaul::cuda
