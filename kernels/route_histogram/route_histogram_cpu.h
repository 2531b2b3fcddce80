// The CPU reference of route_histogram.h, for arguments that were validated there.
#pragma once

#include "kernels/route_histogram/route_histogram.h"

namespace longhaul::cpu {

void route_histogram(const RouteHistogram& op);

}  // namespace longhaul::cpu
