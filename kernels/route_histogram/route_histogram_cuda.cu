// Integer atomics: counts do not depend on their order. Bins are computed in double as on the CPU, to the same integers.
#include "kernels/gpu/launch.cuh"
#include "kernels/route_histogram/route_histogram_cuda.h"

namespace longhaul::cuda {
namespace {

using namespace gpu;

using Counter = unsigned long long;

struct CountMargins {
  const float *scores, *cutoff;
  Counter* counts;
  int64_t experts, bins;
  double low, width;
  template <int W>
  __device__ void apply(int64_t i) const {
    const double margin = static_cast<double>(cutoff[i / experts]) - static_cast<double>(scores[i]);
    const double position = (margin - low) / width;
    int64_t bin = 0;  // NaN stays here
    if (position > 0) {
      bin = position >= static_cast<double>(bins) ? bins - 1 : static_cast<int64_t>(position);
    }
    atomicAdd(&counts[i % experts * bins + bin], Counter{1});
  }
};

struct CountLoad {
  const int32_t* routes;
  Counter* load;
  int64_t experts;
  template <int W>
  __device__ void apply(int64_t i) const {
    if (routes[i] >= 0 && routes[i] < experts) {
      atomicAdd(&load[routes[i]], Counter{1});
    }
  }
};

}  // namespace

void route_histogram(ExecContext& ctx, const RouteHistogram& op) {
  const int64_t experts = op.scores.size(1), bins = op.counts.size(1);
  launch_singly(ctx, "route_histogram", op.scores.numel(),
                CountMargins{op.scores.data<float>(), op.cutoff.data<float>(), reinterpret_cast<Counter*>(op.counts.data<int64_t>()), experts, bins,
                             op.low, (op.high - op.low) / static_cast<double>(bins)});
  launch_singly(ctx, "route_histogram", op.experts.numel(),
                CountLoad{op.experts.data<int32_t>(), reinterpret_cast<Counter*>(op.load.data<int64_t>()), experts});
}

}  // namespace longhaul::cuda
