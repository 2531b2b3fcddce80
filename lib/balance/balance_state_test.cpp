// The state of a stage's balance across ranks and checkpoints: the same bias on any number of ranks, and after a stop in
// the middle of an update period.
#include <catch2/catch_test_macros.hpp>
#include <algorithm>
#include <map>
#include <string>

#include "balance/balance_test_support.h"
#include "tests/support/compare.h"

namespace longhaul {
namespace {

using testing::alone;
using testing::bitwise_equal;
using testing::kExperts;
using testing::kTopK;
using testing::one_router;
using testing::route_and_count;
using testing::step_logits;

// Trains four steps on two ranks, with a pool in the middle of the second period; tokens are split unevenly, and rank 1
// has none in one step.
Tensor bias_on_two_ranks(const BalanceOptions& options) {
  StageBalance first(options, DType::F32, one_router(kExperts, kTopK));
  StageBalance second(options, DType::F32, one_router(kExperts, kTopK));
  testing::TwoRanks ranks;
  ranks.run([&](size_t rank, const BalanceCollectives& collectives) {
    StageBalance& balance = rank == 0 ? first : second;
    for (int64_t step = 1; step <= 4; ++step) {
      const Tensor logits = step_logits(step);
      const int64_t cut = step == 2 ? 64 : 20;
      const TensorView mine = rank == 0 ? logits.view().slice(0, 0, cut) : logits.view().slice(0, cut, 64);
      const auto routes = route_and_count(balance, 0, mine, kTopK);
      if (options.estimator == QuantileEstimator::Exact) {
        balance.observe(0, routes.scores, routes.cutoff);
      }
      balance.end_step(collectives);
      if (step == 3) {
        balance.pool(collectives);
      }
    }
  });
  CHECK(bitwise_equal(first.router(0).bias, second.router(0).bias));
  return Tensor::from(std::span<const float>(first.router(0).bias.data<float>(), kExperts), {kExperts});
}

TEST_CASE("the bias does not depend on the number of ranks", "[balance]") {
  for (const BalanceOptions& options : {BalanceOptions{.sync_every_steps = 2}, BalanceOptions{.estimator = QuantileEstimator::Exact}}) {
    StageBalance single(options, DType::F32, one_router(kExperts, kTopK));
    for (int64_t step = 1; step <= 4; ++step) {
      const auto routes = route_and_count(single, 0, step_logits(step), kTopK);
      if (options.estimator == QuantileEstimator::Exact) {
        single.observe(0, routes.scores, routes.cutoff);
      }
      single.end_step(alone());
    }
    CHECK(bitwise_equal(single.router(0).bias, bias_on_two_ranks(options)));
  }
}

using Saved = std::map<std::string, std::vector<std::byte>>;

Saved save(StageBalance& balance) {
  Saved saved;
  balance.for_each([&](const std::string& name, const TensorView& view) {
    const auto* bytes = static_cast<const std::byte*>(view.raw());
    saved[name] = {bytes, bytes + view.bytes()};
  });
  return saved;
}

void load(StageBalance& balance, const Saved& saved) {
  balance.for_each([&](const std::string& name, const TensorView& view) {
    REQUIRE(std::ssize(saved.at(name)) == view.bytes());
    std::ranges::copy(saved.at(name), static_cast<std::byte*>(view.raw()));
  });
}

TEST_CASE("a run stopped in the middle of a period continues bit for bit", "[balance]") {
  for (const BalanceMethod method : {BalanceMethod::Quantile, BalanceMethod::Sign}) {
    const BalanceOptions options{.method = method, .sync_every_steps = 4};
    const auto train = [&](StageBalance& balance, int64_t begin, int64_t end) {
      for (int64_t step = begin; step <= end; ++step) {
        route_and_count(balance, 0, step_logits(step), kTopK);
        balance.end_step(alone());
      }
    };
    StageBalance straight(options, DType::F32, one_router(kExperts, kTopK, method));
    train(straight, 1, 8);

    StageBalance stopped(options, DType::F32, one_router(kExperts, kTopK, method));
    train(stopped, 1, 6);
    stopped.pool(alone());
    const Saved saved = save(stopped);
    CHECK(saved.contains("gate.e_score_correction_bias"));
    CHECK(saved.contains("gate.balance.steps_since_update"));

    StageBalance resumed(options, DType::F32, one_router(kExperts, kTopK, method));
    load(resumed, saved);
    train(resumed, 7, 8);
    CHECK(bitwise_equal(straight.router(0).bias, resumed.router(0).bias));
    CHECK(straight.router(0).high == resumed.router(0).high);

    // Without the partial statistics the bias would be another one: the test can fail.
    StageBalance forgetful(options, DType::F32, one_router(kExperts, kTopK, method));
    Saved cut = saved;
    std::ranges::fill(cut["gate.balance.counts"], std::byte{0});
    std::ranges::fill(cut["gate.balance.load"], std::byte{0});
    load(forgetful, cut);
    train(forgetful, 7, 8);
    if (method == BalanceMethod::Quantile) {
      CHECK_FALSE(bitwise_equal(straight.router(0).bias, forgetful.router(0).bias));
    }
  }
}

TEST_CASE("state that only this rank knows cannot be saved by mistake", "[balance]") {
  StageBalance balance({.sync_every_steps = 4}, DType::F32, one_router(kExperts, kTopK));
  route_and_count(balance, 0, step_logits(1), kTopK);
  CHECK_THROWS_AS(balance.pool(alone()), InternalError);  // in the middle of a step
  balance.end_step(alone());
  CHECK_THROWS_AS(save(balance), UsageError);
  balance.pool(alone());
  CHECK_NOTHROW(save(balance));
}

}  // namespace
}  // namespace longhaul
