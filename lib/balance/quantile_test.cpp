// Quantiles, updates and load measures on numbers small enough to follow by hand, and on random margins.
#include "balance/quantile.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "balance/balance_options.h"
#include "balance/exact_statistics.h"
#include "base/philox.h"
#include "tensor/tensor.h"

namespace longhaul {
namespace {

double exact(std::vector<double> margins, Quota quota) { return exact_quantile(margins, quota); }

TEST_CASE("a histogram quantile interpolates within its bin", "[balance]") {
  const std::vector<int64_t> counts{0, 3, 0, 5};  // four bins of width 1 on [10, 14]
  const auto at = [&](int64_t routes, int64_t experts) { return histogram_quantile(counts, 10, 14, {.routes = routes, .experts = experts}); };
  CHECK(at(1, 1) == Catch::Approx(11 + 1.0 / 3));
  CHECK(at(3, 1) == 12);                           // the end of the bin that just reaches it
  CHECK(at(4, 1) == Catch::Approx(13 + 1.0 / 5));  // empty bins are passed over
  CHECK(at(8, 1) == 14);
  CHECK(at(1, 2) == Catch::Approx(11 + 0.5 / 3));  // a fractional quota chooses the bin by rounding up, the place by itself
  CHECK(at(7, 2) == Catch::Approx(13 + 0.5 / 5));
  CHECK_THROWS_AS(at(9, 1), InternalError);
  CHECK_THROWS_AS(at(0, 1), InternalError);
}

TEST_CASE("a fractional quota that falls short of its bin takes the bin's start", "[balance]") {
  // Quota 3.5: three margins lie below the last bin, the fourth in it; 0.5 of 5 into the bin. Quota 3.0 ends one bin.
  const std::vector<int64_t> counts{3, 1};
  CHECK(histogram_quantile(counts, 0, 2, {.routes = 7, .experts = 2}) == 1.5);
  CHECK(histogram_quantile(counts, 0, 2, {.routes = 6, .experts = 2}) == 1.0);
}

TEST_CASE("an exact quantile takes the midpoint at a whole quota and the next rank at a fractional one", "[balance]") {
  const std::vector<double> margins{5, 1, 3, 2};
  CHECK(exact(margins, {.routes = 1, .experts = 1}) == 1.5);
  CHECK(exact(margins, {.routes = 3, .experts = 1}) == 4);
  CHECK(exact(margins, {.routes = 3, .experts = 2}) == 2);  // quota 1.5: the second
  CHECK(exact(margins, {.routes = 7, .experts = 2}) == 5);  // quota 3.5: the fourth
  CHECK_THROWS_AS(exact(margins, {.routes = 4, .experts = 1}), InternalError);
}

TEST_CASE("the quantile of a pool is not the mean of quantiles", "[balance]") {
  const std::vector<double> first{0, 0, 1, 1};
  const std::vector<double> second{0, 1, 1, 1};
  const Quota quarter_of_four{.routes = 4, .experts = 4};
  CHECK(0.5 * (exact(first, quarter_of_four) + exact(second, quarter_of_four)) == .25);
  ExactStatistics pooled(1);
  pooled.merge(first);
  pooled.merge(second);
  std::vector<double> all(pooled.margins().begin(), pooled.margins().end());
  CHECK(exact_quantile(all, {.routes = 8, .experts = 4}) == 0.0);
}

TEST_CASE("histogram quantiles stay within one bin of exact ones", "[balance]") {
  constexpr int64_t kTokens = 3000;
  const RandomStream stream{.seed = 1, .stream = 2};
  for (const int64_t bins : {50, 1000}) {
    for (const Quota quota : {Quota{kTokens * 2, 64}, Quota{kTokens * 16, 896}, Quota{kTokens, 2}, Quota{kTokens * 7, 8}}) {
      std::vector<double> margins;
      std::vector<int64_t> counts(static_cast<size_t>(bins));
      const double width = 2.0 / static_cast<double>(bins);
      for (uint64_t i = 0; i < kTokens; ++i) {
        margins.push_back(std::clamp(0.3 * stream.normal(i), -0.999, 0.999));
        ++counts[static_cast<size_t>((margins.back() + 1) / width)];
      }
      const double estimate = histogram_quantile(counts, -1, 1, quota);
      INFO(bins << " bins, quota " << quota.value());
      CHECK(std::abs(estimate - exact_quantile(margins, quota)) <= width);
    }
  }
}

TEST_CASE("new biases are centred, and averaged with the old ones on request", "[balance]") {
  std::vector<double> bias{.4, -.4, 0};
  const std::vector<double> quantiles{1, 2, 6};
  update_by_quantiles(bias, quantiles, 0.75);
  CHECK(bias[0] == Catch::Approx(.3 + .25 - .75));
  CHECK(bias[1] == Catch::Approx(-.3 + .5 - .75));
  CHECK(bias[2] == Catch::Approx(1.5 - .75));
  update_by_quantiles(bias, quantiles, 0);
  CHECK(bias == std::vector<double>{-2, -1, 3});
  const MarginBounds bounds = margin_bounds(bias);
  CHECK(bounds.low == -3);
  CHECK(bounds.high == 4);
}

TEST_CASE("the sign rule lifts idle experts, lowers busy ones and leaves the mean alone", "[balance]") {
  std::vector<double> bias{0, 0, 0, 0};
  update_by_sign(bias, std::vector<int64_t>{7, 3, 3, 3}, .25);  // mean 4
  CHECK(bias == std::vector<double>{-.375, .125, .125, .125});
  std::vector<double> level{0, 0};
  update_by_sign(level, std::vector<int64_t>{5, 5}, .25);
  CHECK(level == std::vector<double>{0, 0});
}

TEST_CASE("load violation is measured against the mean", "[balance]") {
  const LoadSummary load = summarise_load(std::vector<int64_t>{6, 2, 1, 3});
  CHECK(load.max_violation() == 1.0);
  CHECK(load.min_violation() == Catch::Approx(2.0 / 3));
  CHECK(summarise_load(std::vector<int64_t>{0, 0}).max_violation() == 0);
}

TEST_CASE("margins are kept token by token and pooled by concatenation", "[balance]") {
  const Tensor scores = Tensor::from(std::vector<float>{.25f, .5f, .75f, .125f}, {2, 2});
  const Tensor cutoff = Tensor::from(std::vector<float>{.5f, .25f}, {2});
  ExactStatistics statistics(2);
  statistics.add(scores, cutoff);
  CHECK(std::ranges::equal(statistics.margins(), std::vector<double>{.25, 0, -.5, .125}));
  CHECK(statistics.tokens() == 2);
  CHECK(statistics.quantiles(1) == std::vector<double>{-.125, .0625});
  CHECK_THROWS_AS(statistics.merge(std::vector<double>{1}), InternalError);
  CHECK_THROWS_AS(ExactStatistics(3).add(scores, cutoff), ShapeError);
}

// Stands for the recipe reader: lists the keys and takes every rule.
struct KeyList {
  struct Rules {
    Rules& positive() { return *this; }
    Rules& at_least(int64_t) { return *this; }
    Rules& range(double, double) { return *this; }
  };
  template <class T>
  Rules field(std::string_view key, T&, std::string_view) {
    keys.emplace_back(key);
    return {};
  }
  std::vector<std::string> keys;
};

TEST_CASE("the options list the keys of a recipe's balance section", "[balance]") {
  KeyList list;
  BalanceOptions options;
  describe(list, options);
  CHECK(list.keys == std::vector<std::string>{"method", "sync_every_steps", "bins", "ema", "sign_step", "estimator"});
  CHECK(enum_value<BalanceMethod>("sign") == BalanceMethod::Sign);
  CHECK(enum_name(QuantileEstimator::Histogram) == "histogram");
  int broken = 0;
  options.estimator = QuantileEstimator::Exact;
  check(options, [&](std::string_view, std::string_view) { ++broken; });
  CHECK(broken == 0);
  options.sync_every_steps = 4;
  check(options, [&](std::string_view key, std::string_view) {
    CHECK(key == "sync_every_steps");
    ++broken;
  });
  CHECK(broken == 1);
}

}  // namespace
}  // namespace longhaul
