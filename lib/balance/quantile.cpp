// See quantile.h.
#include "balance/quantile.h"

#include <algorithm>
#include <numeric>

namespace longhaul {
namespace {

void centre(std::span<double> bias) {
  const double mean = std::accumulate(bias.begin(), bias.end(), 0.0) / static_cast<double>(bias.size());
  for (double& value : bias) {
    value -= mean;
  }
}

}  // namespace

double histogram_quantile(std::span<const int64_t> counts, double low, double high, Quota quota) {
  const int64_t wanted = quota.rounded_up();
  LH_CHECK(wanted > 0, "a quantile needs a positive rank, got {} of {}", quota.routes, quota.experts);
  const double width = (high - low) / static_cast<double>(counts.size());
  int64_t before = 0;
  for (size_t bin = 0; bin < counts.size(); ++bin) {
    if (before + counts[bin] >= wanted) {
      const double missing = static_cast<double>(quota.routes - before * quota.experts) / static_cast<double>(quota.experts);
      const double share = std::clamp(missing / static_cast<double>(counts[bin]), 0.0, 1.0);
      return low + (static_cast<double>(bin) + share) * width;
    }
    before += counts[bin];
  }
  throw InternalError("rank {} is beyond the {} counted margins", wanted, before);
}

double exact_quantile(std::span<double> margins, Quota quota) {
  const int64_t rank = quota.rounded_up();
  LH_CHECK(rank > 0 && rank < narrow<int64_t>(margins.size()) + (quota.is_whole() ? 0 : 1), "rank {} / {} of {} margins",
           quota.routes, quota.experts, margins.size());
  const auto at = margins.begin() + (rank - 1);
  std::nth_element(margins.begin(), at, margins.end());
  if (!quota.is_whole()) {
    return *at;
  }
  return 0.5 * (*at + *std::min_element(at + 1, margins.end()));
}

void update_by_quantiles(std::span<double> bias, std::span<const double> quantiles, double ema) {
  for (size_t e = 0; e < bias.size(); ++e) {
    bias[e] = ema == 0 ? quantiles[e] : ema * bias[e] + (1 - ema) * quantiles[e];
  }
  centre(bias);
}

void update_by_sign(std::span<double> bias, std::span<const int64_t> load, double step) {
  const int64_t total = std::accumulate(load.begin(), load.end(), int64_t{0});
  for (size_t e = 0; e < bias.size(); ++e) {
    const int64_t scaled = load[e] * narrow<int64_t>(load.size());  // compared exactly with the mean times experts
    if (scaled != total) {
      bias[e] += scaled < total ? step : -step;
    }
  }
  centre(bias);
}

MarginBounds margin_bounds(std::span<const double> bias) {
  const auto [low, high] = std::ranges::minmax(bias);
  return {.low = low - 1, .high = high + 1};
}

LoadSummary summarise_load(std::span<const int64_t> load) {
  const auto [min, max] = std::ranges::minmax(load);
  const int64_t total = std::accumulate(load.begin(), load.end(), int64_t{0});
  return {.max = max, .min = min, .mean = static_cast<double>(total) / static_cast<double>(load.size())};
}

}  // namespace longhaul
