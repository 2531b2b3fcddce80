// See canary.h.
#include "tools/balance_canary/canary.h"

#include <algorithm>
#include <cmath>

#include "kernels/route_histogram/route_histogram.h"
#include "kernels/router/router.h"
#include "tensor/tensor.h"

namespace longhaul {
namespace {

// Bounds the memory of a step with many tokens; the statistics do not depend on it.
constexpr int64_t kMicroBatchTokens = 4096;

// Memory of one micro-batch, used by all variants in turn.
struct Buffers {
  Tensor logits, scores;  // [tokens, experts]
  Tensor experts;         // i32 [tokens, top_k]
  Tensor weights;         // [tokens, top_k]
  Tensor cutoff;          // [tokens]

  Buffers(int64_t tokens, int64_t num_experts, int64_t top_k)
      : logits(DType::F32, {tokens, num_experts}),
        scores(DType::F32, {tokens, num_experts}),
        experts(DType::I32, {tokens, top_k}),
        weights(DType::F32, {tokens, top_k}),
        cutoff(DType::F32, {tokens}) {}
};

StageBalance make_balance(const CanaryOptions& options, const CanaryVariant& variant) {
  BalanceOptions balance = options.balance;
  balance.method = variant.method;
  balance.sync_every_steps = variant.cadence;
  return StageBalance(balance, DType::F32,
                      {{.name = "gate", .experts = options.router.experts, .top_k = options.top_k, .method = variant.method}});
}

// Routes a micro-batch under the variant's bias and counts it, as the mixture's layer does in training.
void route(ExecContext& ctx, const Buffers& b, int64_t tokens, int64_t top_k, const RouterBalance& state) {
  const auto rows = [tokens](const Tensor& tensor) { return tensor.view().slice(0, 0, tokens); };
  router_forward(ctx, {.logits = rows(b.logits), .bias = state.bias, .top_k = top_k, .scores = rows(b.scores), .experts = rows(b.experts),
                       .weights = rows(b.weights), .cutoff = rows(b.cutoff)});
  route_histogram(ctx, {.scores = rows(b.scores), .cutoff = rows(b.cutoff), .experts = rows(b.experts), .low = state.low,
                        .high = state.high, .counts = state.counts, .load = state.load});
}

double bias_range(const StageBalance& balance) {
  const TensorView bias = balance.router(0).bias;
  const auto [low, high] = std::minmax_element(bias.data<float>(), bias.data<float>() + bias.numel());
  return static_cast<double>(*high) - static_cast<double>(*low);
}

CanaryRow summarise(const CanaryVariant& variant, const std::vector<double>& violations, double range, double bar) {
  CanaryRow row{.variant = variant, .start = violations.front(), .bias_range = range};
  for (size_t step = 0; step < violations.size(); ++step) {
    const auto number = static_cast<int64_t>(step) + 1;
    row.below_half = !row.below_half && violations[step] < 0.5 ? number : row.below_half;
    row.below_fifth = !row.below_fifth && violations[step] < 0.2 ? number : row.below_fifth;
  }
  const auto last = std::max<std::ptrdiff_t>(1, std::ssize(violations) / 4);
  for (auto violation = violations.end() - last; violation != violations.end(); ++violation) {
    row.settled += *violation / static_cast<double>(last);
  }
  row.is_promoted = row.settled <= bar;
  return row;
}

}  // namespace

double chance_violation(int64_t experts, double quota) { return std::sqrt(2 * std::log(static_cast<double>(experts)) / quota); }

double promotion_bar(const CanaryOptions& options) {
  const double quota = static_cast<double>(options.tokens * options.top_k) / static_cast<double>(options.router.experts);
  return 0.1 + 2 * chance_violation(options.router.experts, quota);
}

std::vector<CanaryRow> run_canary(const CanaryOptions& options, const std::vector<CanaryVariant>& variants) {
  const SyntheticRouter router(options.router);
  const Buffers buffers(std::min(options.tokens, kMicroBatchTokens), options.router.experts, options.top_k);
  const BalanceCollectives alone{.all_reduce_sum = [](TensorView) {}, .all_gather = {}};
  ExecContext ctx = ExecContext::cpu();
  std::vector<StageBalance> balances;
  for (const CanaryVariant& variant : variants) {
    balances.push_back(make_balance(options, variant));
  }
  std::vector<std::vector<double>> violations(variants.size());  // [variants, steps]
  for (int64_t step = 0; step < options.steps; ++step) {
    for (int64_t first = 0; first < options.tokens; first += kMicroBatchTokens) {
      const int64_t tokens = std::min(kMicroBatchTokens, options.tokens - first);
      router.fill(step, first, buffers.logits.view().slice(0, 0, tokens));
      for (const StageBalance& balance : balances) {
        route(ctx, buffers, tokens, options.top_k, balance.router(0));
      }
    }
    for (size_t i = 0; i < balances.size(); ++i) {
      violations[i].push_back(balances[i].end_step(alone).max_violation());
    }
  }
  std::vector<CanaryRow> rows;
  for (size_t i = 0; i < variants.size(); ++i) {
    rows.push_back(summarise(variants[i], violations[i], bias_range(balances[i]), promotion_bar(options)));
  }
  return rows;
}

}  // namespace longhaul
