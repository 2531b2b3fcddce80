// The CUDA version of route_histogram.h; arguments are checked by the caller, but not the values of experts: one that does
// not exist is not counted.
#pragma once

#include "kernels/route_histogram/route_histogram.h"

namespace longhaul::cuda {

void route_histogram(ExecContext& ctx, const RouteHistogram& op);

}  // namespace longhaul::cuda
