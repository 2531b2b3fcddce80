// Histograms of routing margins on the CPU. The margin and its bin are computed in double from the stored scores, so
// that every backend and layout puts a margin into the same bin.
#include "kernels/route_histogram/route_histogram_cpu.h"

namespace longhaul::cpu {
namespace {

// A margin on an edge belongs to the bin above; outside values, and NaN, go to the end bins.
int64_t bin_of(double margin, double low, double width, int64_t bins) {
  const double position = (margin - low) / width;
  if (!(position > 0)) {
    return 0;
  }
  return position >= static_cast<double>(bins) ? bins - 1 : static_cast<int64_t>(position);
}

template <class T>
void count(const RouteHistogram& op) {
  const int64_t tokens = op.scores.size(0);
  const int64_t experts = op.scores.size(1);
  const int64_t bins = op.counts.size(1);
  const double width = (op.high - op.low) / static_cast<double>(bins);
  int64_t* counts = op.counts.data<int64_t>();
  for (int64_t t = 0; t < tokens; ++t) {
    const T* scores = op.scores.data<T>() + t * experts;
    const auto cutoff = static_cast<double>(op.cutoff.data<T>()[t]);
    for (int64_t e = 0; e < experts; ++e) {
      ++counts[e * bins + bin_of(cutoff - static_cast<double>(scores[e]), op.low, width, bins)];
    }
  }
  const int32_t* routes = op.experts.data<int32_t>();
  int64_t* load = op.load.data<int64_t>();
  for (int64_t slot = 0; slot < op.experts.numel(); ++slot) {
    LH_CHECK(routes[slot] >= 0 && routes[slot] < experts, "expert {} of slot {} is not below {}", routes[slot], slot, experts);
    ++load[routes[slot]];
  }
}

}  // namespace

void route_histogram(const RouteHistogram& op) {
  dispatch_float(op.scores.dtype(), "route_histogram", [&](auto zero) { count<decltype(zero)>(op); });
}

}  // namespace longhaul::cpu
