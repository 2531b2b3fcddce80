// Histograms of routing margins: a hand case, the end bins, independence of order and splits.
#include "kernels/route_histogram/route_histogram.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>

#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"

namespace longhaul {
namespace {

struct Counts {
  Tensor counts, load;
  Counts(int64_t experts, int64_t bins)
      : counts(Tensor::zeros(DType::I64, {experts, bins})), load(Tensor::zeros(DType::I64, {experts})) {}
  std::map<int, int> bins_of(int64_t expert) const {
    std::map<int, int> found;
    const int64_t bins = counts.view().size(1);
    for (int64_t bin = 0; bin < bins; ++bin) {
      const int64_t n = counts.values<int64_t>()[static_cast<size_t>(expert * bins + bin)];
      if (n != 0) {
        found[static_cast<int>(bin)] = static_cast<int>(n);
      }
    }
    return found;
  }
};

// Four tokens, four experts, top-1: the cutoff is the second largest score.
const std::vector<double> kScores{.875, .75, .125, .25, .75, .625, .25, .125, .625, .875, .25, .375, .5, .375, .25, .125};
const std::vector<double> kCutoffs{.75, .625, .625, .375};
const std::vector<int32_t> kRoutes{0, 0, 1, 0};

using Bins = std::map<int, int>;

template <class T>
void check_hand_case() {
  const Tensor scores = Tensor::from(std::vector<T>(kScores.begin(), kScores.end()), {4, 4});
  const Tensor cutoff = Tensor::from(std::vector<T>(kCutoffs.begin(), kCutoffs.end()), {4});
  const Tensor routes = Tensor::from(kRoutes, {4, 1});
  const Counts out(4, 16);
  ExecContext ctx = ExecContext::cpu();
  route_histogram(ctx, {.scores = scores, .cutoff = cutoff, .experts = routes, .low = -1, .high = 1, .counts = out.counts, .load = out.load});
  CHECK(out.bins_of(0) == Bins{{7, 3}, {8, 1}});
  CHECK(out.bins_of(1) == Bins{{6, 1}, {8, 3}});
  CHECK(out.bins_of(2) == Bins{{9, 1}, {11, 2}, {13, 1}});
  CHECK(out.bins_of(3) == Bins{{10, 2}, {12, 2}});
  CHECK(testing::to_doubles(out.load) == std::vector<double>{3, 1, 0, 0});
}

TEST_CASE("sixteen bins of a hand case, in both precisions", "[kernels]") {
  check_hand_case<double>();
  check_hand_case<float>();
}

TEST_CASE("margins outside the interval go to the end bins", "[kernels]") {
  // Margins -inf, below, on the low edge, on the high edge, above, NaN; one token each.
  const Tensor scores = Tensor::zeros(DType::F64, {6, 1});
  const Tensor cutoff = Tensor::from(std::vector<double>{-INFINITY, -3, -1, 1, 3, NAN}, {6});
  const Tensor routes = Tensor::zeros(DType::I32, {6, 1});
  const Counts out(1, 4);
  ExecContext ctx = ExecContext::cpu();
  route_histogram(ctx, {.scores = scores, .cutoff = cutoff, .experts = routes, .low = -1, .high = 1, .counts = out.counts, .load = out.load});
  CHECK(out.bins_of(0) == Bins{{0, 4}, {3, 2}});
  CHECK(out.load.values<int64_t>()[0] == 6);
}

TEST_CASE("counts accumulate over micro-batches in any order to the same integers", "[kernels]") {
  constexpr int64_t kTokens = 30;
  constexpr int64_t kExperts = 5;
  const Tensor scores = testing::random_tensor(DType::F32, {kTokens, kExperts}, "scores", .2, .5);
  const Tensor cutoff = testing::random_tensor(DType::F32, {kTokens}, "cutoff", .1, .6);
  const Tensor routes = Tensor::zeros(DType::I32, {kTokens, 2});
  for (size_t i = 0; i < 2 * kTokens; ++i) {
    routes.values<int32_t>()[i] = static_cast<int32_t>((i * 7) % kExperts);
  }
  ExecContext ctx = ExecContext::cpu();
  const auto add = [&](const Counts& out, int64_t begin, int64_t end) {
    route_histogram(ctx, {.scores = scores.view().slice(0, begin, end), .cutoff = cutoff.view().slice(0, begin, end),
                          .experts = routes.view().slice(0, begin, end), .counts = out.counts, .load = out.load});
  };
  const Counts whole(kExperts, 100);
  add(whole, 0, kTokens);
  const Counts parts(kExperts, 100);
  add(parts, 17, kTokens);
  add(parts, 4, 4);  // an empty micro-batch
  add(parts, 0, 17);
  CHECK(testing::bitwise_equal(whole.counts, parts.counts));
  CHECK(testing::bitwise_equal(whole.load, parts.load));
  double total = 0;
  for (const double n : testing::to_doubles(whole.counts)) {
    total += n;
  }
  CHECK(total == kTokens * kExperts);  // each token once for each expert
}

TEST_CASE("the histogram refuses wrong arguments", "[kernels]") {
  const Tensor scores = Tensor::zeros(DType::F32, {2, 3});
  const Tensor cutoff = Tensor::zeros(DType::F32, {2});
  const Tensor routes = Tensor::zeros(DType::I32, {2, 1});
  const Counts out(3, 4);
  ExecContext ctx = ExecContext::cpu();
  ExecContext plan = ExecContext::plan(Device{});
  const RouteHistogram good{.scores = scores, .cutoff = cutoff, .experts = routes, .counts = out.counts, .load = out.load};
  route_histogram(plan, good);
  CHECK(out.load.values<int64_t>()[0] == 0);  // planning counts nothing
  auto op = good;
  op.high = -2;
  CHECK_THROWS_AS(route_histogram(plan, op), ShapeError);
  op = good;
  op.cutoff = Tensor(DType::F64, {2}).view();
  CHECK_THROWS_AS(route_histogram(plan, op), ShapeError);
  op = good;
  op.load = cutoff;
  CHECK_THROWS_AS(route_histogram(plan, op), ShapeError);
  routes.values<int32_t>()[1] = 3;
  CHECK_THROWS_AS(route_histogram(ctx, good), InternalError);
}

}  // namespace
}  // namespace longhaul
