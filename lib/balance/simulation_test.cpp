// Balancing a skewed router with fresh batches: how fast the busiest expert comes down to the mean.
//
// What remains at the end is noise: an expert with a quota of q tokens varies by 1 / sqrt(q), and the bias comes from
// one earlier batch that varies as much, so the busiest of n experts stays near sqrt(2) sqrt(2 ln n / q) above the mean.
// The batches are chosen so that this lies below the bars: 0.26 at q = 256 and n = 64, 0.06 at q = 4096 and n = 32.
#include <catch2/catch_test_macros.hpp>

#include "balance/balance_test_support.h"

namespace longhaul {
namespace {

struct Simulation {
  std::vector<double> offsets;  // [experts], of the logits
  int64_t top_k = 1;
  int64_t tokens = 0;  // of a batch
  int64_t updates = 20;
  BalanceOptions options;
};

// Max violation of the batch before each update, and of one more batch after the last.
std::vector<double> violations(const Simulation& s) {
  StageBalance balance(s.options, DType::F32,
                       {{.name = "gate", .experts = static_cast<int64_t>(s.offsets.size()), .top_k = s.top_k, .method = s.options.method}});
  std::vector<double> result;
  for (int64_t step = 0; step <= s.updates; ++step) {
    const auto logits = testing::skewed_logits(s.offsets, s.tokens, static_cast<uint64_t>(step));
    const auto routes = testing::route_and_count(balance, 0, logits, s.top_k);
    if (s.options.estimator == QuantileEstimator::Exact) {
      balance.observe(0, routes.scores, routes.cutoff);
    }
    result.push_back(balance.end_step(testing::alone()).max_violation());
  }
  return result;
}

// 64 experts, top 2, offsets of standard deviation 1.5 with one expert at +4.
Simulation skewed(BalanceMethod method) {
  Simulation s{.top_k = 2, .tokens = 8192, .options = {.method = method}};
  const RandomStream stream{.seed = 5, .stream = 1};
  for (uint64_t e = 0; e < 64; ++e) {
    s.offsets.push_back(e == 11 ? 4 : 1.5 * stream.normal(e));
  }
  return s;
}

TEST_CASE("quantile balancing brings 64 skewed experts near the mean within 20 updates", "[balance]") {
  const std::vector<double> v = violations(skewed(BalanceMethod::Quantile));
  INFO("before " << v.front() << ", after one update " << v[1] << ", two " << v[2] << ", at the end " << v.back());
  CHECK(v.front() > 5);
  CHECK(v[2] < v.front() / 4);  // most of it in the first two
  CHECK(v.back() < 0.5);
}

TEST_CASE("the sign rule with its usual step is still far away then", "[balance]") {
  Simulation s = skewed(BalanceMethod::Sign);
  s.tokens = 2048;  // quotas of 64: the noise is small beside what is left
  const std::vector<double> v = violations(s);
  INFO("before " << v.front() << ", at the end " << v.back());
  CHECK(v.front() > 5);
  CHECK(v.back() > 3);
}

TEST_CASE("exact quantiles do no better than a thousand bins", "[balance]") {
  Simulation s = skewed(BalanceMethod::Quantile);
  s.updates = 4;
  s.tokens = 2048;
  const double histogram = violations(s).back();
  s.options.estimator = QuantileEstimator::Exact;
  const double exact = violations(s).back();
  INFO("histogram " << histogram << ", exact " << exact);
  CHECK(std::abs(histogram - exact) < 0.1);
}

TEST_CASE("one of 32 experts ahead by 3 comes within a tenth of the mean", "[balance]") {
  Simulation s{.offsets = std::vector<double>(32, 0.0), .top_k = 4, .tokens = 32768, .updates = 8, .options = {}};
  s.offsets[0] = 3;
  const std::vector<double> v = violations(s);
  INFO("before " << v.front() << ", at the end " << v.back());
  CHECK(v.front() > 1);
  CHECK(v.back() < 0.1);
}

}  // namespace
}  // namespace longhaul
