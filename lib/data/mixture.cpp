// See mixture.h.
#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace longhaul {

Mixture::Mixture(std::span<const double> weights) {
  double sum = 0.0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] < 0.0) {
      throw RecipeError("the weight of data source {} must be a number of 0 or more, got {}", i, weights[i]);
    }
    sum += weights[i];
  }
  if (!(sum > 0.0) || !std::isfinite(sum)) {
    throw RecipeError("the weights of {} data sources sum to {}; at least one must be positive", weights.size(), sum);
  }
  for (const double weight : weights) {
    const auto units = static_cast<int64_t>(std::llround(weight / sum * 0x1p32));
    units_.push_back(weight > 0.0 ? std::max<int64_t>(units, 1) : 0);
  }
  sum_of_units_ = std::accumulate(units_.begin(), units_.end(), int64_t{0});
}

int64_t Mixture::choose(std::span<const int64_t> drawn, int64_t tokens) const {
  LH_CHECK(drawn.size() == units_.size(), "{} sources are mixed, got counts of {}", units_.size(), drawn.size());
  using Wide = __int128;  // 2^33 units x 2^60 tokens
  const Wide total = std::accumulate(drawn.begin(), drawn.end(), int64_t{0}) + tokens;
  int64_t best = -1;
  Wide best_deficit = 0;
  for (size_t i = 0; i < units_.size(); ++i) {
    const Wide deficit = Wide{units_[i]} * total - Wide{drawn[i]} * sum_of_units_;
    if (units_[i] > 0 && (best < 0 || deficit > best_deficit)) {
      best = static_cast<int64_t>(i);
      best_deficit = deficit;
    }
  }
  return best;
}

}  // namespace longhaul
