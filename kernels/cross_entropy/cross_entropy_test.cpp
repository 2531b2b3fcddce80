// Uniform and hand-worked losses, finite differences, ignored targets, chunk sizes, large logits, optional outputs.
#include "kernels/cross_entropy/cross_entropy.h"

#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "kernels/op_test.h"

using namespace longhaul;
using namespace longhaul::testing;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

constexpr int64_t kTokens = 7, kHidden = 5, kVocab = 19;

struct Case {
  Tensor x, weight, targets, loss, dx, dweight;

  explicit Case(DType dtype)
      : x(converted(random_tensor(DType::F64, {kTokens, kHidden}, "x"), dtype)),
        weight(converted(random_tensor(DType::F64, {kVocab, kHidden}, "weight"), dtype)),
        targets(Tensor::from<int32_t>({0, 18, kIgnoredTarget, 4, 4, kIgnoredTarget, 11}, {kTokens})),
        loss(Tensor::zeros(DType::F64, {1})),
        dx(poisoned(dtype, {kTokens, kHidden})),
        dweight(Tensor::zeros(DType::F64, {kVocab, kHidden})) {}

  void run(ExecContext& ctx, int64_t chunk_tokens) const {
    linear_cross_entropy(ctx, {.x = x, .weight = weight, .targets = targets, .grad_scale = 0.2, .chunk_tokens = chunk_tokens,
                               .loss_sum = loss, .dx = dx, .dweight = dweight});
  }
  [[nodiscard]] double sum() const { return loss.values<double>()[0]; }
};

}  // namespace

TEST_CASE("equal logits cost log(vocab) a token", "[cross_entropy]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor x = random_tensor(DType::F64, {3, 4}, "x"), weight = Tensor::zeros(DType::F64, {10, 4});
  const Tensor targets = Tensor::from<int32_t>({1, kIgnoredTarget, 9}, {3});
  const Tensor loss = Tensor::from<double>({0.5}, {1});
  linear_cross_entropy(ctx, {.x = x, .weight = weight, .targets = targets, .loss_sum = loss});
  CHECK_THAT(loss.values<double>()[0], WithinRel(0.5 + 2 * std::log(10.0), 1e-14));  // added to what was there
}

TEST_CASE("loss and gradients of one token worked by hand", "[cross_entropy]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor x = Tensor::from<double>({1}, {1, 1});
  const Tensor weight = Tensor::from<double>({0, std::log(3.0)}, {2, 1});  // probabilities 1/4 and 3/4
  const Tensor targets = Tensor::from<int32_t>({0}, {1});
  const Tensor loss = Tensor::zeros(DType::F64, {1});
  const Tensor dx = poisoned(DType::F64, {1, 1}), dweight = Tensor::from<double>({1, 1}, {2, 1});
  linear_cross_entropy(ctx, {.x = x, .weight = weight, .targets = targets, .grad_scale = 2, .loss_sum = loss, .dx = dx, .dweight = dweight});
  CHECK_THAT(loss.values<double>()[0], WithinRel(std::log(4.0), 1e-14));
  CHECK_THAT(dx.values<double>()[0], WithinRel(2 * 0.75 * std::log(3.0), 1e-14));
  CHECK_THAT(dweight.values<double>()[0], WithinRel(1 + 2 * -0.75, 1e-14));
  CHECK_THAT(dweight.values<double>()[1], WithinRel(1 + 2 * 0.75, 1e-14));
}

TEST_CASE("linear_cross_entropy agrees with finite differences", "[cross_entropy][grad]") {
  ExecContext ctx = ExecContext::cpu();
  const Case c(DType::F64);
  c.run(ctx, 3);
  const auto loss = [&] {
    const Tensor sum = Tensor::zeros(DType::F64, {1});
    linear_cross_entropy(ctx, {.x = c.x, .weight = c.weight, .targets = c.targets, .loss_sum = sum});
    return 0.2 * sum.values<double>()[0];
  };
  CHECK(gradient_error(c.x, c.dx, loss, {.max_elements = 100}) < 1e-7);
  CHECK(gradient_error(c.weight, c.dweight, loss, {.max_elements = 100}) < 1e-7);
  for (const int64_t ignored : {2, 5}) {
    CHECK(to_doubles(c.dx.view()[ignored]) == std::vector<double>(kHidden, 0.0));
  }
}

TEST_CASE("the chunk size does not change the result", "[cross_entropy]") {
  ExecContext ctx = ExecContext::cpu();
  const Case whole(DType::F64);
  whole.run(ctx, 1024);
  for (const int64_t chunk : {1, 2, 3, 6, 7, 8}) {
    const Case c(DType::F64);
    c.run(ctx, chunk);
    CHECK_THAT(c.sum(), WithinRel(whole.sum(), 1e-14));
    CHECK(difference(c.dx, whole.dx).within(1e-13));
    CHECK(difference(c.dweight, whole.dweight).within(1e-13));
  }
}

TEST_CASE("linear_cross_entropy in float agrees with double", "[cross_entropy]") {
  ExecContext ctx = ExecContext::cpu();
  const Case wide(DType::F64), narrow_case(DType::F32);
  wide.run(ctx, 4);
  narrow_case.run(ctx, 4);
  CHECK_THAT(narrow_case.sum(), WithinRel(wide.sum(), 1e-6));
  CHECK(difference(narrow_case.dx, wide.dx).within(1e-5));
  CHECK(difference(narrow_case.dweight, wide.dweight).within(1e-5));
}

TEST_CASE("large logits neither overflow nor lose the loss", "[cross_entropy]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor x = Tensor::from<float>({1000}, {1, 1});
  const Tensor weight = Tensor::from<float>({1, -1, 0.999f}, {3, 1});
  const Tensor targets = Tensor::from<int32_t>({1}, {1});
  const Tensor loss = Tensor::zeros(DType::F64, {1}), dx = poisoned(DType::F32, {1, 1});
  linear_cross_entropy(ctx, {.x = x, .weight = weight, .targets = targets, .grad_scale = 1, .loss_sum = loss, .dx = dx});
  CHECK_THAT(loss.values<double>()[0], WithinAbs(2000 + std::log1p(std::exp(-1.0)), 1e-3));
  CHECK(std::isfinite(dx.values<float>()[0]));
}

TEST_CASE("each gradient can be left out, and weights accumulate", "[cross_entropy]") {
  ExecContext ctx = ExecContext::cpu();
  const Case all(DType::F64), c(DType::F64);
  all.run(ctx, 4);
  for (int i = 0; i < 2; ++i) {
    linear_cross_entropy(ctx, {.x = c.x, .weight = c.weight, .targets = c.targets, .grad_scale = 0.2, .chunk_tokens = 4, .loss_sum = c.loss, .dweight = c.dweight});
  }
  linear_cross_entropy(ctx, {.x = c.x, .weight = c.weight, .targets = c.targets, .grad_scale = 0.2, .chunk_tokens = 4, .loss_sum = c.loss, .dx = c.dx});
  CHECK(bitwise_equal(c.dx, all.dx));
  CHECK_THAT(c.sum(), WithinRel(3 * all.sum(), 1e-14));
  for (size_t i = 0; i < c.dweight.values<double>().size(); ++i) {
    CHECK_THAT(c.dweight.values<double>()[i], WithinAbs(2 * all.dweight.values<double>()[i], 1e-14));
  }
}

TEST_CASE("no tokens, and no valid targets", "[cross_entropy]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor weight = random_tensor(DType::F32, {4, 3}, "weight"), loss = Tensor::zeros(DType::F64, {1});
  const Tensor dweight = Tensor::zeros(DType::F64, {4, 3}), empty(DType::F32, {0, 3});
  linear_cross_entropy(ctx, {.x = empty, .weight = weight, .targets = Tensor(DType::I32, {0}), .loss_sum = loss, .dx = empty, .dweight = dweight});
  const Tensor x = random_tensor(DType::F32, {2, 3}, "x"), dx = poisoned(DType::F32, {2, 3});
  const Tensor ignored = Tensor::from<int32_t>({kIgnoredTarget, kIgnoredTarget}, {2});
  linear_cross_entropy(ctx, {.x = x, .weight = weight, .targets = ignored, .grad_scale = 1, .loss_sum = loss, .dx = dx, .dweight = dweight});
  CHECK(loss.values<double>()[0] == 0);
  CHECK(to_doubles(dx) == std::vector<double>(6, 0.0));
  CHECK(to_doubles(dweight) == std::vector<double>(12, 0.0));
}

TEST_CASE("a target outside the vocabulary is a data error and writes nothing", "[cross_entropy]") {
  ExecContext ctx = ExecContext::cpu();
  const Case c(DType::F32);
  for (const int32_t bad : {19, -1}) {
    c.targets.values<int32_t>()[6] = bad;
    CHECK_THROWS_AS(c.run(ctx, 2), DataError);
    CHECK_THROWS_WITH(c.run(ctx, 2), Catch::Matchers::ContainsSubstring("token 6 has target " + std::to_string(bad)));
  }
  CHECK(c.sum() == 0);
  CHECK(to_doubles(c.dweight) == std::vector<double>(kVocab * kHidden, 0.0));
}

TEST_CASE("linear_cross_entropy names the argument that is wrong", "[cross_entropy]") {
  ExecContext ctx = ExecContext::cpu();
  const Case c(DType::F32);
  const Tensor wrong(DType::F32, {2, 2});
  check_shape_error("weight", [&] { linear_cross_entropy(ctx, {.x = c.x, .weight = wrong, .targets = c.targets, .loss_sum = c.loss}); });
  check_shape_error("targets", [&] { linear_cross_entropy(ctx, {.x = c.x, .weight = c.weight, .targets = wrong, .loss_sum = c.loss}); });
  check_shape_error("loss_sum", [&] { linear_cross_entropy(ctx, {.x = c.x, .weight = c.weight, .targets = c.targets}); });
  check_shape_error("dx", [&] { linear_cross_entropy(ctx, {.x = c.x, .weight = c.weight, .targets = c.targets, .loss_sum = c.loss, .dx = wrong}); });
  check_shape_error("dweight", [&] { linear_cross_entropy(ctx, {.x = c.x, .weight = c.weight, .targets = c.targets, .loss_sum = c.loss, .dweight = wrong}); });
  CHECK_THROWS_AS(c.run(ctx, 0), UsageError);
}

TEST_CASE("linear_cross_entropy plans the scratch that it uses", "[cross_entropy]") {
  ExecContext plan = ExecContext::plan(Device{}), run = ExecContext::cpu();
  for (const int64_t chunk : {2, 1000}) {
    const Case c(DType::F32);
    c.run(run, chunk);
    linear_cross_entropy(plan, {.x = planned(DType::F32, {kTokens, kHidden}), .weight = planned(DType::F32, {kVocab, kHidden}),
                                .targets = planned(DType::I32, {kTokens}), .chunk_tokens = chunk, .loss_sum = planned(DType::F64, {1}),
                                .dx = planned(DType::F32, {kTokens, kHidden}), .dweight = planned(DType::F64, {kVocab, kHidden})});
    CHECK(plan.scratch().high_water_bytes() == run.scratch().high_water_bytes());
  }
  CHECK(plan.scratch().used_bytes() == 0);
}
