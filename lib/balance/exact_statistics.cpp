// See exact_statistics.h.
#include "balance/exact_statistics.h"

#include "balance/quantile.h"

namespace longhaul {

void ExactStatistics::add(const TensorView& scores, const TensorView& cutoff) {
  constexpr std::string_view kName = "ExactStatistics::add";
  expect(kName, "cutoff", cutoff, scores.dtype(), {cutoff.numel()});
  expect(kName, "scores", scores, scores.dtype(), {cutoff.numel(), experts_});
  dispatch_float(scores.dtype(), kName, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t t = 0; t < cutoff.numel(); ++t) {
      for (int64_t e = 0; e < experts_; ++e) {
        margins_.push_back(static_cast<double>(cutoff.data<T>()[t]) - static_cast<double>(scores.data<T>()[t * experts_ + e]));
      }
    }
  });
}

void ExactStatistics::merge(std::span<const double> margins) {
  LH_CHECK(narrow<int64_t>(margins.size()) % experts_ == 0, "{} margins are no whole tokens of {} experts", margins.size(), experts_);
  margins_.insert(margins_.end(), margins.begin(), margins.end());
}

std::vector<double> ExactStatistics::quantiles(int64_t top_k) const {
  std::vector<double> result;
  std::vector<double> column(static_cast<size_t>(tokens()));
  for (int64_t e = 0; e < experts_; ++e) {
    for (int64_t t = 0; t < tokens(); ++t) {
      column[static_cast<size_t>(t)] = margins_[static_cast<size_t>(t * experts_ + e)];
    }
    result.push_back(exact_quantile(column, {.routes = tokens() * top_k, .experts = experts_}));
  }
  return result;
}

}  // namespace longhaul
