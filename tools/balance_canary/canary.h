// Compares ways of balancing on one synthetic router: every variant routes the same tokens with biases of its own, through
// the operations and the StageBalance that training uses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "balance/stage_balance.h"
#include "tools/balance_canary/synthetic_router.h"

namespace longhaul {

struct CanaryOptions {
  SyntheticRouter::Options router;
  int64_t top_k = 1;
  int64_t tokens = 0;  // a step
  int64_t steps = 0;
  BalanceOptions balance;  // the recipe's; method and sync_every_steps come from the variant
};

struct CanaryVariant {
  BalanceMethod method = BalanceMethod::Quantile;
  int64_t cadence = 1;  // steps from one update to the next
};

struct CanaryRow {
  CanaryVariant variant;
  double start = 0;                     // max violation, max / mean - 1, of the first step
  std::optional<int64_t> below_half;    // first step with a violation below 0.5
  std::optional<int64_t> below_fifth;   // and below 0.2
  double settled = 0;                   // mean violation of the last quarter of the steps
  double bias_range = 0;                // largest minus smallest bias at the end
  bool is_promoted = false;             // settled is at most promotion_bar
};

// The violation that chance alone leaves when every expert is equally likely: the busiest of n experts with a quota of q
// tokens lies about sqrt(2 ln n / q) above the mean.
[[nodiscard]] double chance_violation(int64_t experts, double quota);
// 0.1 above twice the violation of chance; twice, because biases come from an earlier batch that varies as much.
[[nodiscard]] double promotion_bar(const CanaryOptions& options);

// One row a variant, in their order.
[[nodiscard]] std::vector<CanaryRow> run_canary(const CanaryOptions& options, const std::vector<CanaryVariant>& variants);

}  // namespace longhaul
