// Helpers for the tests of this folder: batches through the real router and histogram, and ranks as threads.
#pragma once

#include <array>
#include <barrier>
#include <cmath>
#include <thread>
#include <vector>

#include "balance/stage_balance.h"
#include "base/philox.h"
#include "kernels/route_histogram/route_histogram.h"
#include "kernels/router/router.h"

namespace longhaul::testing {

// One rank alone.
inline BalanceCollectives alone() {
  return {.all_reduce_sum = [](TensorView) {}, .all_gather = {}};
}

struct Routes {
  Tensor scores;   // [tokens, experts]
  Tensor experts;  // i32 [tokens, top_k]
  Tensor cutoff;   // [tokens]
};

// Routes one micro-batch under the present bias and counts it, as the MoE layer does in training.
inline Routes route_and_count(const StageBalance& balance, int64_t index, const TensorView& logits, int64_t top_k) {
  const RouterBalance state = balance.router(index);
  const int64_t tokens = logits.size(0);
  const int64_t experts = logits.size(1);
  Routes out{Tensor(logits.dtype(), {tokens, experts}), Tensor(DType::I32, {tokens, top_k}), Tensor(logits.dtype(), {tokens})};
  const Tensor weights(logits.dtype(), {tokens, top_k});
  ExecContext ctx = ExecContext::cpu();
  router_forward(ctx, {.logits = logits, .bias = state.bias, .top_k = top_k, .scores = out.scores, .experts = out.experts,
                       .weights = weights, .cutoff = out.cutoff});
  route_histogram(ctx, {.scores = out.scores, .cutoff = out.cutoff, .experts = out.experts, .low = state.low, .high = state.high,
                        .counts = state.counts, .load = state.load});
  return out;
}

// Logits [tokens, experts] of a skewed router: an offset per expert plus fresh logistic noise for every batch. Four
// values come from one call of the generator.
inline Tensor skewed_logits(std::span<const double> offsets, int64_t tokens, uint64_t batch) {
  const auto experts = static_cast<int64_t>(offsets.size());
  Tensor logits(DType::F32, {tokens, experts});
  const RandomStream stream{.seed = 77, .stream = batch};
  const auto values = logits.values<float>();
  Philox4 words{};
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 4 == 0) {
      words = stream.words(i / 4);
    }
    const float u = (static_cast<float>(words[i % 4] >> 8) + 0.5f) * 0x1p-24f;
    values[i] = static_cast<float>(offsets[i % offsets.size()]) + std::log(u / (1 - u));
  }
  return logits;
}

inline std::vector<BalancedRouter> one_router(int64_t experts, int64_t top_k, BalanceMethod method = BalanceMethod::Quantile) {
  return {{.name = "gate", .experts = experts, .top_k = top_k, .method = method}};
}

// Logits [64, kExperts] of one step; every call with the same arguments gives the same.
inline Tensor step_logits(int64_t step, int64_t layer = 0) {
  const std::vector<double> offsets{2, 1, .5, 0, 0, -.5, -1, -2};
  return skewed_logits(offsets, 64, static_cast<uint64_t>(100 * step + layer));
}
inline constexpr int64_t kExperts = 8;
inline constexpr int64_t kTopK = 2;

// Two ranks as threads; collectives meet at a barrier.
class TwoRanks {
 public:
  // Runs fn(rank, collectives) for both.
  template <class Fn>
  void run(Fn fn) {
    std::jthread other([&] { fn(1, collectives_of(1)); });
    fn(0, collectives_of(0));
  }

 private:
  BalanceCollectives collectives_of(size_t rank) {
    return {.all_reduce_sum = [this, rank](TensorView view) {
              views_[rank] = view;
              meeting_.arrive_and_wait();
              std::vector<int64_t> sum(static_cast<size_t>(view.numel()));
              for (size_t i = 0; i < sum.size(); ++i) {
                sum[i] = views_[0].data<int64_t>()[i] + views_[1].data<int64_t>()[i];
              }
              meeting_.arrive_and_wait();
              std::ranges::copy(sum, view.data<int64_t>());
              meeting_.arrive_and_wait();
            },
            .all_gather = [this, rank](std::span<const double> mine) {
              values_[rank] = mine;
              meeting_.arrive_and_wait();
              std::vector<double> all(values_[0].begin(), values_[0].end());
              all.insert(all.end(), values_[1].begin(), values_[1].end());
              meeting_.arrive_and_wait();
              return all;
            }};
  }

  std::barrier<> meeting_{2};
  std::array<TensorView, 2> views_;
  std::array<std::span<const double>, 2> values_;
};

}  // namespace longhaul::testing
