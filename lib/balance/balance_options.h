// The `balance:` section of a recipe: how the selection bias of the routers follows their load.
//
//   balance: {method: quantile, sync_every_steps: 4, bins: 1000, ema: 0.0}
#pragma once

#include <cstdint>

#include "base/enum_names.h"

namespace longhaul {

enum class BalanceMethod : uint8_t {
  Quantile,  // Quantile Balancing (Kimi K3, arXiv:2607.24653, eq. 13-14, appendix D)
  Sign,      // a fixed step against the load error (Wang et al., arXiv:2408.15664; DeepSeek-V3)
  None,      // the bias stays as it is
};
constexpr EnumNames<BalanceMethod, 3> enum_names(BalanceMethod) {
  return {{{BalanceMethod::Quantile, "quantile"}, {BalanceMethod::Sign, "sign"}, {BalanceMethod::None, "none"}}};
}

enum class QuantileEstimator : uint8_t {
  Histogram,  // integer counts, one all-reduce; within one bin of the exact quantile
  Exact,      // keeps every margin; for validation on small models
};
constexpr EnumNames<QuantileEstimator, 2> enum_names(QuantileEstimator) {
  return {{{QuantileEstimator::Histogram, "histogram"}, {QuantileEstimator::Exact, "exact"}}};
}

struct BalanceOptions {
  BalanceMethod method = BalanceMethod::Quantile;
  int64_t sync_every_steps = 1;
  int64_t bins = 1000;
  double ema = 0;
  double sign_step = 1e-3;
  QuantileEstimator estimator = QuantileEstimator::Histogram;
};

template <class V>
void describe(V& v, BalanceOptions& o) {
  v.field("method", o.method, "how the routers' selection bias follows the load");
  v.field("sync_every_steps", o.sync_every_steps, "steps from one update of the bias to the next; its statistics cover all of them").positive();
  v.field("bins", o.bins, "bins of the histogram of one expert").at_least(2);
  v.field("ema", o.ema, "weight of the old bias in the new one; 0 takes the new quantiles as they are").range(0.0, 1.0);
  v.field("sign_step", o.sign_step, "change of a bias in one update with method sign").positive();
  v.field("estimator", o.estimator, "quantiles from histograms, or exact ones that keep every margin (validation)");
}

// Rules across keys: report(key, message) for each that is broken.
template <class Report>
void check(const BalanceOptions& o, Report&& report) {
  if (o.estimator == QuantileEstimator::Exact && o.sync_every_steps != 1) {
    report("sync_every_steps", "must be 1 with estimator exact, whose statistics are not kept from one step to the next");
  }
}

}  // namespace longhaul
