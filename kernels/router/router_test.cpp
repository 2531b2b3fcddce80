// The router: hand values, ties, the sign and the precision of the bias, forced routes, gradients.
#include "kernels/router/router.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"

namespace longhaul {
namespace {

using testing::random_tensor;

double logit(double score) { return std::log(score / (1 - score)); }

// Outputs of one call, poisoned beforehand.
struct Routed {
  Tensor scores, experts, weights, cutoff;

  Routed(DType dtype, int64_t tokens, int64_t num_experts, int64_t top_k)
      : scores(dtype, {tokens, num_experts}), experts(DType::I32, {tokens, top_k}), weights(dtype, {tokens, top_k}), cutoff(dtype, {tokens}) {
    for (const Tensor* tensor : {&scores, &experts, &weights, &cutoff}) {
      if (tensor->view().bytes() > 0) {
        std::memset(tensor->view().raw(), 0xff, static_cast<size_t>(tensor->view().bytes()));  // NaN, and expert -1
      }
    }
  }
  std::vector<int> route(int64_t token) const {
    const auto row = experts.view()[token];
    return {row.data<int32_t>(), row.data<int32_t>() + row.numel()};
  }
};

Routed route(const Tensor& logits, const Tensor& bias, int64_t top_k, double scaling = 1, const TensorView& forced = {}) {
  Routed out(logits.view().dtype(), logits.view().size(0), logits.view().size(1), top_k);
  ExecContext ctx = ExecContext::cpu();
  router_forward(ctx, {.logits = logits, .bias = bias, .top_k = top_k, .scaling = scaling, .forced_experts = forced,
                       .scores = out.scores, .experts = out.experts, .weights = out.weights, .cutoff = out.cutoff});
  return out;
}

Tensor logits_of(const std::vector<double>& scores) {
  std::vector<double> values;
  std::transform(scores.begin(), scores.end(), std::back_inserter(values), logit);
  return Tensor::from(values, {1, narrow<int64_t>(values.size())});
}

TEST_CASE("routes, weights and cutoff of a hand case", "[kernels]") {
  const Tensor bias = Tensor::from(std::vector<double>{0, 0, .5, 0}, {4});
  const Routed out = route(logits_of({.5, .4, .3, .2}), bias, 2, 2.0);
  CHECK(out.route(0) == std::vector<int>{2, 0});  // .8 and .5 with bias
  CHECK(out.weights.values<double>()[0] == Catch::Approx(2 * .3 / .8));  // weights know nothing of the bias
  CHECK(out.weights.values<double>()[1] == Catch::Approx(2 * .5 / .8));
  CHECK(out.cutoff.values<double>()[0] == Catch::Approx(.4));
  CHECK(out.scores.values<double>()[2] == Catch::Approx(.3));
}

TEST_CASE("the cutoff is a biased score", "[kernels]") {
  const Tensor bias = Tensor::from(std::vector<double>{0, .25, 0}, {3});
  const Routed out = route(logits_of({.9, .4, .5}), bias, 1);
  CHECK(out.route(0) == std::vector<int>{0});
  CHECK(out.cutoff.values<double>()[0] == Catch::Approx(.65));
}

TEST_CASE("ties go to the lower expert", "[kernels]") {
  const Tensor logits = Tensor::zeros(DType::F32, {2, 9});
  const Tensor bias = Tensor::zeros(DType::F32, {9});
  const Routed out = route(logits, bias, 3);
  CHECK(out.route(0) == std::vector<int>{0, 1, 2});
  CHECK(out.route(1) == std::vector<int>{0, 1, 2});
  CHECK(out.cutoff.values<float>()[0] == .5f);
}

TEST_CASE("the selection equals a stable sort of biased scores", "[kernels]") {
  constexpr int64_t kTokens = 50;
  constexpr int64_t kExperts = 40;
  constexpr int64_t kTopK = 7;
  const Tensor logits = random_tensor(DType::F32, {kTokens, kExperts}, "logits");
  for (float& value : logits.values<float>()) {
    value = std::round(value * 4) / 4;  // many ties
  }
  const Tensor bias = Tensor::zeros(DType::F32, {kExperts});
  bias.values<float>()[3] = .25f;
  const Routed out = route(logits, bias, kTopK);
  for (int64_t t = 0; t < kTokens; ++t) {
    const float* scores = out.scores.values<float>().data() + t * kExperts;
    const auto biased = [&](int e) { return scores[e] + bias.values<float>()[static_cast<size_t>(e)]; };
    std::vector<int> order(kExperts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return biased(a) > biased(b); });
    CHECK(out.cutoff.values<float>()[static_cast<size_t>(t)] == biased(order[kTopK]));
    order.resize(kTopK);
    CHECK(out.route(t) == order);
  }
}

TEST_CASE("an expert with a larger bias receives more tokens", "[kernels]") {
  constexpr int64_t kExperts = 8;
  const Tensor logits = random_tensor(DType::F64, {200, kExperts}, "logits");
  const auto load_of_5 = [&](double value) {
    const Tensor bias = Tensor::zeros(DType::F64, {kExperts});
    bias.values<double>()[5] = value;
    const Routed out = route(logits, bias, 2);
    return std::ranges::count(out.experts.values<int32_t>(), 5);
  };
  CHECK(load_of_5(-.3) < load_of_5(0));
  CHECK(load_of_5(0) < load_of_5(.3));
}

TEST_CASE("a bias difference below bf16 decides", "[kernels]") {
  const Tensor logits = Tensor::zeros(DType::F32, {1, 2});
  const Tensor bias = Tensor::from(std::vector<float>{.10001f, .10002f}, {2});
  CHECK(BFloat16(.10001f).bits == BFloat16(.10002f).bits);
  CHECK(route(logits, bias, 1).route(0) == std::vector<int>{1});
}

TEST_CASE("with top_k equal to the experts every expert is chosen and there is no cutoff", "[kernels]") {
  const Routed out = route(logits_of({.2, .6, .4}), Tensor::zeros(DType::F64, {3}), 3);
  CHECK(out.route(0) == std::vector<int>{1, 2, 0});
  CHECK(out.cutoff.values<double>()[0] == -INFINITY);
  const auto weights = out.weights.values<double>();
  CHECK(weights[0] + weights[1] + weights[2] == Catch::Approx(1));
}

TEST_CASE("forced experts replace the selection, not the cutoff", "[kernels]") {
  const Tensor logits = logits_of({.5, .4, .3, .2});
  const Tensor bias = Tensor::zeros(DType::F64, {4});
  const Tensor forced = Tensor::from(std::vector<int32_t>{3, 1}, {1, 2});
  const Routed out = route(logits, bias, 2, 1, forced);
  CHECK(out.route(0) == std::vector<int>{3, 1});
  CHECK(out.weights.values<double>()[0] == Catch::Approx(.2 / .6));
  CHECK(out.cutoff.values<double>()[0] == Catch::Approx(.3));
  const Tensor outside = Tensor::from(std::vector<int32_t>{3, 4}, {1, 2});
  CHECK_THROWS_AS(route(logits, bias, 2, 1, outside), DataError);
  const Tensor repeated = Tensor::from(std::vector<int32_t>{3, 3}, {1, 2});
  CHECK_THROWS_AS(route(logits, bias, 2, 1, repeated), DataError);
}

TEST_CASE("saturated and non-finite logits still give distinct routes", "[kernels]") {
  const Tensor low = Tensor::from(std::vector<float>{-200, -200, -200}, {1, 3});
  const Tensor bias = Tensor::zeros(DType::F32, {3});
  const Routed out = route(low, bias, 2);
  CHECK(out.route(0) == std::vector<int>{0, 1});
  CHECK(std::isfinite(out.weights.values<float>()[0]));
  const Tensor bad = Tensor::from(std::vector<float>{1, NAN, 2}, {1, 3});
  std::vector<int> routes = route(bad, bias, 3).route(0);
  std::ranges::sort(routes);
  CHECK(routes == std::vector<int>{0, 1, 2});
}

TEST_CASE("router gradients agree with finite differences at fixed routes", "[kernels][grad]") {
  constexpr int64_t kTokens = 4;
  constexpr int64_t kExperts = 6;
  constexpr int64_t kTopK = 3;
  const double scaling = 2.5;
  const Tensor logits = random_tensor(DType::F64, {kTokens, kExperts}, "logits");
  const Tensor bias = random_tensor(DType::F64, {kExperts}, "bias", .2);
  const Tensor dweights = random_tensor(DType::F64, {kTokens, kTopK}, "dweights");
  const Routed out = route(logits, bias, kTopK, scaling);
  const Tensor dlogits = Tensor::from(std::vector<double>(kTokens * kExperts, NAN), {kTokens, kExperts});
  ExecContext ctx = ExecContext::cpu();
  router_backward(ctx, {.dweights = dweights, .scores = out.scores, .experts = out.experts, .weights = out.weights,
                        .scaling = scaling, .dlogits = dlogits});
  const auto loss = [&] { return testing::dot(route(logits, bias, kTopK, scaling, out.experts).weights, dweights); };
  CHECK(testing::gradient_error(logits, dlogits, loss) < 1e-8);
  for (int64_t t = 0; t < kTokens; ++t) {
    CHECK(std::ranges::count(std::span(dlogits.values<double>()).subspan(static_cast<size_t>(t * kExperts), kExperts), 0.0) ==
          kExperts - kTopK);
  }
}

TEST_CASE("the router takes no tokens and refuses wrong arguments", "[kernels]") {
  CHECK(route(Tensor(DType::F32, {0, 4}), Tensor::zeros(DType::F32, {4}), 2).cutoff.view().numel() == 0);
  const Tensor logits = random_tensor(DType::F32, {2, 4}, "logits");
  const Tensor bias = Tensor::zeros(DType::F32, {4});
  const Tensor rounded_bias(DType::BF16, {4});
  CHECK_THROWS_AS(route(logits, rounded_bias, 2), ShapeError);
  CHECK_THROWS_AS(route(logits, bias, 0), ShapeError);
  CHECK_THROWS_AS(route(logits, bias, 5), ShapeError);
  const Tensor forced = Tensor::from(std::vector<int32_t>{0, 1}, {1, 2});
  CHECK_THROWS_AS(route(logits, bias, 2, 1, forced), ShapeError);
  ExecContext plan = ExecContext::plan(Device{});
  const Routed out(DType::F32, 2, 4, 2);
  CHECK_THROWS_AS(router_backward(plan, {.dweights = out.scores, .scores = out.scores, .experts = out.experts,
                                         .weights = out.weights, .dlogits = out.scores}),
                  ShapeError);
}

}  // namespace
}  // namespace longhaul
