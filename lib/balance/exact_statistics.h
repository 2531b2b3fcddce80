// Every routing margin of one router, for exact quantiles. For validating the histogram: memory grows with tokens.
#pragma once

#include <span>
#include <vector>

#include "tensor/tensor_view.h"

namespace longhaul {

class ExactStatistics {
 public:
  explicit ExactStatistics(int64_t experts) : experts_(experts) {}

  // scores [tokens, experts] and cutoff [tokens] as the router wrote them, f32 or f64 on the CPU.
  void add(const TensorView& scores, const TensorView& cutoff);
  // Margins of other tokens, token by token, as margins() gives them: pools the statistics of ranks or micro-batches.
  void merge(std::span<const double> margins);
  void clear() noexcept { margins_.clear(); }

  [[nodiscard]] int64_t tokens() const noexcept { return static_cast<int64_t>(margins_.size()) / experts_; }
  [[nodiscard]] std::span<const double> margins() const noexcept { return margins_; }  // [tokens, experts]
  // The (top_k / experts)-quantile of every expert, not centred. Needs tokens, and top_k below experts.
  [[nodiscard]] std::vector<double> quantiles(int64_t top_k) const;

 private:
  int64_t experts_;
  std::vector<double> margins_;
};

}  // namespace longhaul
