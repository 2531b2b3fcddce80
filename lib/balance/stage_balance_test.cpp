// The life of a stage's balance: a hand case from scores to the next routes, update periods, mixed methods, and what
// must not change a bias.
#include "balance/stage_balance.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "balance/balance_test_support.h"
#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"

namespace longhaul {
namespace {

using testing::alone;
using testing::bitwise_equal;
using testing::kExperts;
using testing::kTopK;
using testing::one_router;
using testing::route_and_count;
using testing::step_logits;

// Four tokens, four experts, top 1. All values are exact in binary.
const std::vector<double> kScores{.875, .75, .125, .25, .75, .625, .25, .125, .625, .875, .25, .375, .5, .375, .25, .125};

// Routes and cutoffs of the hand case under a bias, by definition.
struct HandRoutes {
  Tensor scores = Tensor::from(kScores, {4, 4});
  Tensor experts{DType::I32, {4, 1}};
  Tensor cutoff{DType::F64, {4}};

  explicit HandRoutes(const TensorView& bias) {
    for (size_t t = 0; t < 4; ++t) {
      std::vector<int> order{0, 1, 2, 3};
      const auto biased = [&](int e) { return kScores[4 * t + static_cast<size_t>(e)] + bias.data<double>()[e]; };
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return biased(a) > biased(b); });
      experts.values<int32_t>()[t] = order[0];
      cutoff.values<double>()[t] = biased(order[1]);
    }
  }
  void count(const RouterBalance& state) const {
    ExecContext ctx = ExecContext::cpu();
    route_histogram(ctx, {.scores = scores, .cutoff = cutoff, .experts = experts, .low = state.low, .high = state.high,
                          .counts = state.counts, .load = state.load});
  }
};

std::map<int64_t, int64_t> filled_bins(const TensorView& counts) {
  std::map<int64_t, int64_t> bins;
  for (int64_t bin = 0; bin < counts.numel(); ++bin) {
    if (counts.data<int64_t>()[bin] > 0) {
      bins[bin] = counts.data<int64_t>()[bin];
    }
  }
  return bins;
}

TEST_CASE("the hand case with exact quantiles, from scores to the next routes", "[balance]") {
  StageBalance balance({.estimator = QuantileEstimator::Exact}, DType::F64, one_router(4, 1));
  const HandRoutes before(balance.router(0).bias);
  CHECK(testing::to_doubles(before.experts) == std::vector<double>{0, 0, 1, 0});
  CHECK(testing::to_doubles(before.cutoff) == std::vector<double>{.75, .625, .625, .375});

  ExactStatistics statistics(4);
  statistics.add(before.scores, before.cutoff);
  CHECK(statistics.quantiles(1) == std::vector<double>{-.125, -.125, .25, .25});

  before.count(balance.router(0));
  balance.observe(0, before.scores, before.cutoff);
  const BalanceReport report = balance.end_step(alone());
  CHECK(report.updated);
  CHECK(report.loads[0].max == 3);
  CHECK(report.max_violation() == 2.0);
  CHECK(testing::to_doubles(balance.router(0).bias) == std::vector<double>{-.1875, -.1875, .1875, .1875});
  CHECK(balance.router(0).low == -1.1875);
  CHECK(balance.router(0).high == 1.1875);
  const HandRoutes after(balance.router(0).bias);
  CHECK(testing::to_doubles(after.experts) == std::vector<double>{0, 0, 1, 2});
}

TEST_CASE("the hand case with sixteen bins", "[balance]") {
  StageBalance balance({.bins = 16}, DType::F64, one_router(4, 1));
  HandRoutes(balance.router(0).bias).count(balance.router(0));
  using Bins = std::map<int64_t, int64_t>;
  const TensorView counts = balance.router(0).counts;
  CHECK(filled_bins(counts[0]) == Bins{{7, 3}, {8, 1}});
  CHECK(filled_bins(counts[1]) == Bins{{6, 1}, {8, 3}});
  CHECK(filled_bins(counts[2]) == Bins{{9, 1}, {11, 2}, {13, 1}});
  CHECK(filled_bins(counts[3]) == Bins{{10, 2}, {12, 2}});
  balance.end_step(alone());
  // Raw -1/12, -1/8, 1/4, 5/16; each within a bin (1/8) of the exact one.
  const std::vector<double> raw{-1.0 / 12, -.125, .25, .3125};
  const double mean = std::accumulate(raw.begin(), raw.end(), 0.0) / 4;
  const std::vector<double> exact{-.1875, -.1875, .1875, .1875};
  for (size_t e = 0; e < 4; ++e) {
    const double bias = balance.router(0).bias.data<double>()[e];
    CHECK(bias == Catch::Approx(raw[e] - mean));
    CHECK(std::abs(bias - exact[e]) <= .125);
  }
  CHECK(filled_bins(counts).empty());  // the next period starts from nothing
}

TEST_CASE("the bias is frozen within a period and changes at its end", "[balance]") {
  StageBalance balance({.sync_every_steps = 4}, DType::F32, one_router(kExperts, kTopK));
  for (int64_t step = 1; step <= 8; ++step) {
    const std::vector<double> before = testing::to_doubles(balance.router(0).bias);
    const double low = balance.router(0).low;
    route_and_count(balance, 0, step_logits(step), kTopK);
    CHECK(testing::to_doubles(balance.router(0).bias) == before);
    const BalanceReport report = balance.end_step(alone());
    CHECK(report.loads[0].mean == 64 * kTopK / static_cast<double>(kExperts));  // loads are those of this step
    CHECK(report.updated == (step % 4 == 0));
    CHECK((testing::to_doubles(balance.router(0).bias) != before) == report.updated);
    CHECK((balance.router(0).low != low) == report.updated);
  }
}

TEST_CASE("an update makes one all-reduce of everything, other steps one of the loads", "[balance]") {
  StageBalance balance({.sync_every_steps = 2, .bins = 10}, DType::F32,
                       {{.name = "a", .experts = 8, .top_k = 2}, {.name = "b", .experts = 4, .top_k = 1}});
  std::vector<int64_t> sizes;
  const BalanceCollectives counting{.all_reduce_sum = [&](TensorView view) { sizes.push_back(view.numel()); }, .all_gather = {}};
  for (int step = 0; step < 4; ++step) {
    balance.end_step(counting);
  }
  CHECK(sizes == std::vector<int64_t>{12, 132, 12, 132});
}

TEST_CASE("a stage without routers has nothing to reduce", "[balance]") {
  StageBalance balance({}, DType::F32, {});
  const BalanceCollectives refusing{.all_reduce_sum = [](TensorView) { FAIL("a collective"); }, .all_gather = {}};
  balance.pool(refusing);
  const BalanceReport report = balance.end_step(refusing);
  CHECK_FALSE(report.updated);
  CHECK(report.max_violation() == 0);
}

TEST_CASE("a layer without balancing does not keep the others from theirs", "[balance]") {
  StageBalance balance({}, DType::F32, {{.name = "a", .experts = kExperts, .top_k = kTopK},
                                        {.name = "b", .experts = kExperts, .top_k = kTopK, .method = BalanceMethod::None},
                                        {.name = "c", .experts = kExperts, .top_k = kTopK}});
  const Tensor zero = Tensor::zeros(DType::F32, {kExperts});
  for (int64_t layer = 0; layer < 3; ++layer) {
    route_and_count(balance, layer, step_logits(1, layer), kTopK);
  }
  const BalanceReport report = balance.end_step(alone());
  CHECK_FALSE(bitwise_equal(balance.router(0).bias, zero));
  CHECK(bitwise_equal(balance.router(1).bias, zero));
  CHECK_FALSE(bitwise_equal(balance.router(2).bias, zero));
  for (int64_t layer = 0; layer < 3; ++layer) {
    CHECK(report.loads[static_cast<size_t>(layer)].max_violation() > 0);
    CHECK(filled_bins(balance.router(layer).counts).empty());
    CHECK(filled_bins(balance.router(layer).load).empty());
  }
}

TEST_CASE("the sign rule moves every bias by its step", "[balance]") {
  StageBalance balance({.method = BalanceMethod::Sign, .sign_step = .125}, DType::F64, one_router(4, 1, BalanceMethod::Sign));
  HandRoutes(balance.router(0).bias).count(balance.router(0));  // loads 3, 1, 0, 0, mean 1
  balance.end_step(alone());
  CHECK(testing::to_doubles(balance.router(0).bias) == std::vector<double>{-.15625, -.03125, .09375, .09375});
}

TEST_CASE("a moving average keeps a part of the old bias", "[balance]") {
  StageBalance plain({}, DType::F64, one_router(4, 1));
  StageBalance slow({.ema = .5}, DType::F64, one_router(4, 1));
  for (StageBalance* balance : {&plain, &slow}) {
    HandRoutes(balance->router(0).bias).count(balance->router(0));
    balance->end_step(alone());
  }
  for (size_t e = 0; e < 4; ++e) {
    CHECK(slow.router(0).bias.data<double>()[e] == Catch::Approx(.5 * plain.router(0).bias.data<double>()[e]));
  }
}

TEST_CASE("a step without tokens leaves the bias as it is", "[balance]") {
  for (const BalanceMethod method : {BalanceMethod::Quantile, BalanceMethod::Sign}) {
    StageBalance balance({.method = method}, DType::F32, one_router(kExperts, kTopK, method));
    route_and_count(balance, 0, step_logits(1), kTopK);
    balance.end_step(alone());
    const std::vector<double> before = testing::to_doubles(balance.router(0).bias);
    const BalanceReport report = balance.end_step(alone());
    CHECK(report.max_violation() == 0);
    CHECK(testing::to_doubles(balance.router(0).bias) == before);
  }
}

TEST_CASE("with every expert chosen there is nothing to balance", "[balance]") {
  StageBalance balance({}, DType::F32, one_router(kExperts, kExperts));
  route_and_count(balance, 0, step_logits(1), kExperts);
  balance.end_step(alone());
  CHECK(bitwise_equal(balance.router(0).bias, Tensor::zeros(DType::F32, {kExperts})));
}

TEST_CASE("a token that was counted twice in one place is noticed", "[balance]") {
  StageBalance balance({}, DType::F32, one_router(kExperts, kTopK));
  route_and_count(balance, 0, step_logits(1), kTopK);
  balance.router(0).counts.data<int64_t>()[5] += 1;
  CHECK_THROWS_AS(balance.end_step(alone()), InternalError);
}

TEST_CASE("the bias does not depend on micro-batches", "[balance]") {
  const Tensor logits = step_logits(1);
  StageBalance whole({}, DType::F32, one_router(kExperts, kTopK));
  route_and_count(whole, 0, logits, kTopK);
  whole.end_step(alone());
  StageBalance parts({}, DType::F32, one_router(kExperts, kTopK));
  for (const auto& [begin, end] : {std::pair{40, 64}, std::pair{0, 1}, std::pair{1, 40}}) {
    route_and_count(parts, 0, logits.view().slice(0, begin, end), kTopK);
  }
  parts.end_step(alone());
  CHECK(bitwise_equal(whole.router(0).bias, parts.router(0).bias));
}

TEST_CASE("a bias from elsewhere starts with fresh statistics and its own bounds", "[balance]") {
  StageBalance balance({.sync_every_steps = 4}, DType::F32, one_router(kExperts, kTopK));
  route_and_count(balance, 0, step_logits(1), kTopK);
  balance.end_step(alone());
  balance.router(0).bias.data<float>()[2] = .5f;
  balance.restart();
  CHECK(balance.router(0).high == 1.5);
  CHECK(balance.router(0).low == -1);
  CHECK(filled_bins(balance.router(0).counts).empty());
}

TEST_CASE("the mean of the bias stays zero over a thousand updates", "[balance]") {
  for (const BalanceMethod method : {BalanceMethod::Quantile, BalanceMethod::Sign}) {
    StageBalance balance({.method = method, .bins = 100, .ema = .9}, DType::F32, one_router(kExperts, kTopK, method));
    for (int64_t step = 0; step < 1000; ++step) {
      route_and_count(balance, 0, step_logits(step), kTopK);
      balance.end_step(alone());
    }
    const std::vector<double> bias = testing::to_doubles(balance.router(0).bias);
    CHECK(std::abs(std::accumulate(bias.begin(), bias.end(), 0.0)) < 1e-6 * kExperts);
    CHECK(*std::ranges::max_element(bias) > .01);  // it did move
  }
}

TEST_CASE("exact estimation refuses periods, and steps that nobody observed", "[balance]") {
  CHECK_THROWS_AS(StageBalance({.sync_every_steps = 2, .estimator = QuantileEstimator::Exact}, DType::F32, {}), RecipeError);
  StageBalance balance({.estimator = QuantileEstimator::Exact}, DType::F32, one_router(kExperts, kTopK));
  route_and_count(balance, 0, step_logits(1), kTopK);
  CHECK_THROWS_AS(balance.end_step(alone()), InternalError);
}

}  // namespace
}  // namespace longhaul
