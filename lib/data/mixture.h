// Which source the next sequence comes from: the one that is furthest behind its share of the tokens (largest deficit;
// ties to the first). Shares are met at every moment to within a sequence or two, not only on average, and the choice is
// a pure function of the tokens drawn so far, so it needs no random state. Integer arithmetic: no rounding drifts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longhaul {

class Mixture {
 public:
  // Weights need not sum to 1; a source of weight 0 is never drawn but keeps its place. RecipeError for a negative or
  // non-finite weight, or when all are 0.
  explicit Mixture(std::span<const double> weights);

  // The source of the next `tokens` tokens, given the tokens drawn from each source so far.
  [[nodiscard]] int64_t choose(std::span<const int64_t> drawn, int64_t tokens) const;

 private:
  std::vector<int64_t> units_;  // weight in 2^-32 of the sum, at least 1 where the weight is positive
  int64_t sum_of_units_ = 0;
};

}  // namespace longhaul
