// The canary tells good balancing from none, and its synthetic router is what it says.
#include "tools/balance_canary/canary.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tensor/tensor.h"

namespace longhaul {
namespace {

CanaryOptions small_options() {
  return {.router = {.experts = 16, .skew = 1.5, .drift = 0.005, .seed = 3}, .top_k = 2, .tokens = 4096, .steps = 24, .balance = {}};
}

TEST_CASE("a skewed router is promoted with quantile balancing and held without", "[tools]") {
  const CanaryOptions options = small_options();
  const std::vector<CanaryRow> rows = run_canary(
      options, {{.method = BalanceMethod::Quantile, .cadence = 1}, {.method = BalanceMethod::Sign, .cadence = 1}, {.method = BalanceMethod::None}});
  REQUIRE(rows.size() == 3);
  INFO("quantile " << rows[0].settled << ", sign " << rows[1].settled << ", none " << rows[2].settled);
  CHECK(rows[0].start == rows[2].start);  // the same tokens, and no bias yet
  CHECK(rows[0].start > 1);
  CHECK(rows[0].is_promoted);
  CHECK(rows[0].below_half.value_or(99) <= 5);
  CHECK(rows[0].bias_range > 0.1);
  CHECK_FALSE(rows[1].is_promoted);  // 24 steps of 0.001 change little
  CHECK_FALSE(rows[2].is_promoted);
  CHECK_FALSE(rows[2].below_half.has_value());
  CHECK(rows[2].bias_range == 0);
}

TEST_CASE("with a slow cadence the first update comes late", "[tools]") {
  const std::vector<CanaryRow> rows = run_canary(small_options(), {{.cadence = 1}, {.cadence = 8}});
  CHECK(rows[0].below_half.value_or(99) < 8);
  CHECK(rows[1].below_half.value_or(99) > 8);
}

TEST_CASE("an even router needs no balancing", "[tools]") {
  CanaryOptions options = small_options();
  options.router.skew = 0;
  const std::vector<CanaryRow> rows = run_canary(options, {{.method = BalanceMethod::None}});
  CHECK(rows[0].is_promoted);
  CHECK(rows[0].start < 3 * chance_violation(16, 512));
}

TEST_CASE("the bar follows from chance alone", "[tools]") {
  CHECK(chance_violation(16, 512) == Catch::Approx(0.10407).margin(1e-4));
  CHECK(promotion_bar(small_options()) == Catch::Approx(0.30814).margin(1e-4));
}

TEST_CASE("logits depend on the token and the step, not on how tokens are cut", "[tools]") {
  const SyntheticRouter router({.experts = 6, .skew = 2, .drift = 0.1, .seed = 1});
  const Tensor whole(DType::F32, {10, 6}), part(DType::F32, {4, 6}), later(DType::F32, {10, 6});
  router.fill(3, 0, whole);
  router.fill(3, 6, part);
  router.fill(4, 0, later);
  for (int64_t i = 0; i < 24; ++i) {
    CHECK(part.values<float>()[static_cast<size_t>(i)] == whole.values<float>()[static_cast<size_t>(36 + i)]);
  }
  CHECK(later.values<float>()[0] != whole.values<float>()[0]);
}

}  // namespace
}  // namespace longhaul
