// Runs of the router and of Quantile Balancing; see golden_runs.h.
#include <cmath>

#include "balance/exact_statistics.h"
#include "balance/quantile.h"
#include "kernels/linear/linear.h"
#include "kernels/route_histogram/route_histogram.h"
#include "kernels/router/router.h"
#include "tests/golden/golden_runs.h"
#include "tests/support/compare.h"

namespace longhaul::testing {
namespace {

void run_router(ExecContext& ctx, GoldenCase& c) {
  const TensorView x = c["in.x"];
  const TensorView gate = c["weight.gate.weight"];
  const Shape per_expert{x.size(0), gate.size(0)};
  const TensorView logits = c.temporary(per_expert);
  const TensorView scores = c.out("scores"), experts = c.out("routes"), weights = c.out("mixing_weights");
  const int64_t top_k = c.integer("num_experts_per_token");
  const double scaling = c.number("routed_scaling_factor");
  linear_forward(ctx, {.x = x, .weight = gate, .y = logits});
  router_forward(ctx, {.logits = logits,
                       .bias = c["weight.gate.e_score_correction_bias"],
                       .top_k = top_k,
                       .scaling = scaling,
                       .forced_experts = {},
                       .scores = scores,
                       .experts = experts,
                       .weights = weights,
                       .cutoff = c.out("cutoffs")});
  const TensorView dlogits = c.temporary(per_expert);
  router_backward(ctx, {.dweights = c["dy.mixing_weights"],
                        .scores = scores,
                        .experts = experts,
                        .weights = weights,
                        .scaling = scaling,
                        .dlogits = dlogits});
  linear_backward(ctx, {.dy = dlogits, .x = x, .weight = gate, .dx = c.grad("in.x"), .dweight = c.grad_sum("weight.gate.weight")});
}

// Routes under a bias. The operation takes logits, so the file's scores come back rounded; equal scores stay equal.
struct Choice {
  TensorView experts;  // i32 [tokens, top_k]
  TensorView cutoff;   // [tokens]
};
void route(ExecContext& ctx, GoldenCase& c, const TensorView& bias, const Choice& choice) {
  std::vector<double> logits = to_doubles(c["in.scores"]);
  for (double& s : logits) {
    s = std::log(s / (1 - s));
  }
  const Shape per_expert = c["in.scores"].shape();
  router_forward(ctx, {.logits = c.tensor(logits, per_expert), .bias = bias, .top_k = choice.experts.size(1), .forced_experts = {},
                       .scores = c.temporary(per_expert), .experts = choice.experts, .weights = c.temporary(choice.experts.shape()),
                       .cutoff = choice.cutoff});
}

// One estimator's outputs: the quantiles, the centred bias, the interval of the next margins.
std::vector<double> expect_update(GoldenCase& c, const std::string& estimator, const std::vector<double>& quantiles) {
  std::vector<double> bias(quantiles.size());
  update_by_quantiles(bias, quantiles, 0);
  const MarginBounds next = margin_bounds(bias);
  c.expect("out." + estimator + "_raw", quantiles);
  c.expect("out." + estimator + "_bias", bias);
  c.expect("out." + estimator + "_next_bounds", {next.low, next.high});
  return bias;
}

// Margins on the edges of bins need the very scores and cutoffs, so the statistics take those of the file.
void run_quantile_balance(ExecContext& ctx, GoldenCase& c) {
  const TensorView scores = c["in.scores"], cutoff = c["out.cutoffs"];
  const int64_t experts = scores.size(1), bins = c.integer("bins"), top_k = c.integer("num_experts_per_token");
  const TensorView routes = c.out("routes");
  route(ctx, c, c["in.bias"], {.experts = routes, .cutoff = c.out("cutoffs")});

  const Quota quota{.routes = scores.size(0) * top_k, .experts = experts};
  c.expect("out.quota", {quota.value()});
  const MarginBounds bounds = margin_bounds(to_doubles(c["in.bias"]));
  c.expect("out.bounds", {bounds.low, bounds.high});
  const Tensor counts = Tensor::zeros(DType::I64, {experts, bins});
  const Tensor load = Tensor::zeros(DType::I64, {experts});
  route_histogram(
      ctx, {.scores = scores, .cutoff = cutoff, .experts = routes, .low = bounds.low, .high = bounds.high, .counts = counts, .load = load});
  c.expect("out.histogram", to_doubles(counts));
  c.expect("out.loads", to_doubles(load));

  std::vector<double> estimated;
  for (int64_t e = 0; e < experts; ++e) {
    const auto row = std::span(counts.values<int64_t>()).subspan(static_cast<size_t>(e * bins), static_cast<size_t>(bins));
    estimated.push_back(histogram_quantile(row, bounds.low, bounds.high, quota));
  }
  expect_update(c, "histogram", estimated);
  ExactStatistics exact(experts);
  exact.add(scores, cutoff);
  const std::vector<double> bias = expect_update(c, "exact", exact.quantiles(top_k));
  if (c.has("out.next_routes")) {
    route(ctx, c, c.tensor(bias, {experts}), {.experts = c.out("next_routes"), .cutoff = c.temporary(cutoff.shape())});
  }
}

}  // namespace

GoldenRuns routing_runs() { return {{"router", run_router}, {"quantile_balance", run_quantile_balance}}; }

}  // namespace longhaul::testing
