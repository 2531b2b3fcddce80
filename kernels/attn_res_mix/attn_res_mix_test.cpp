// Attention-Residual mixing: hand values, equal weights at the start, gradients, and independence between tokens.
#include "kernels/attn_res_mix/attn_res_mix.h"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"

namespace longhaul {
namespace {

using testing::random_tensor;

Tensor filled(const Shape& shape, double value) {
  Tensor tensor(DType::F64, shape);
  std::fill_n(tensor.values<double>().data(), shape.numel(), value);
  return tensor;
}

std::vector<TensorView> views(const std::vector<Tensor>& tensors) { return {tensors.begin(), tensors.end()}; }

Tensor vector_of(const std::vector<double>& values) { return Tensor::from(values, {narrow<int64_t>(values.size())}); }

TEST_CASE("a bank row (1, 0) and a prefix (0, 2) mix as computed by hand", "[kernels]") {
  // Normed: (sqrt 2, 0) and (0, sqrt 2); scores sqrt(2)/2 and 0.
  const Tensor bank = Tensor::from(std::vector<double>{1, 0}, {1, 2});
  const Tensor prefix = Tensor::from(std::vector<double>{0, 2}, {1, 2});
  const std::vector<TensorView> sources{bank, prefix};
  const Tensor scale = vector_of({1, 1});
  const Tensor y = filled({1, 2}, NAN);
  ExecContext ctx = ExecContext::cpu();
  const Tensor query = vector_of({.5, 0});
  attn_res_mix_forward(ctx, {.sources = sources, .norm_scale = scale, .query = query, .eps = 0, .y = y});
  CHECK(y.values<double>()[0] == Catch::Approx(.669762).margin(1e-6));
  CHECK(y.values<double>()[1] == Catch::Approx(.660477).margin(1e-6));
  const Tensor start = vector_of({0, 0});
  attn_res_mix_forward(ctx, {.sources = sources, .norm_scale = scale, .query = start, .eps = 0, .y = y});
  CHECK(y.values<double>()[0] == .5);  // a zero query is the equal-weight mean
  CHECK(y.values<double>()[1] == 1.0);
}

struct Problem {
  static constexpr int64_t kTokens = 3;
  static constexpr int64_t kHidden = 11;  // not a multiple of any vector width
  std::vector<Tensor> sources;
  std::vector<TensorView> source_views;
  Tensor scale = random_tensor(DType::F64, {kHidden}, "scale", .3, 1);
  Tensor query = random_tensor(DType::F64, {kHidden}, "query", .3);
  Tensor dy = random_tensor(DType::F64, {kTokens, kHidden}, "dy");

  explicit Problem(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      sources.push_back(random_tensor(DType::F64, {kTokens, kHidden}, fmt::format("source {}", i), 1 + static_cast<double>(i)));
    }
    source_views = views(sources);
  }
  double loss() const {
    ExecContext ctx = ExecContext::cpu();
    const Tensor y = filled({kTokens, kHidden}, NAN);
    attn_res_mix_forward(ctx, {.sources = source_views, .norm_scale = scale, .query = query, .eps = 1e-5, .y = y});
    return testing::dot(y, dy);
  }
};

TEST_CASE("mixing gradients agree with finite differences", "[kernels][grad]") {
  const int64_t count = 4;
  const Problem p(count);
  std::vector<Tensor> dsources;
  for (int64_t i = 0; i < count; ++i) {
    dsources.push_back(filled({Problem::kTokens, Problem::kHidden}, 0));
  }
  const Tensor dscale = filled({Problem::kHidden}, 0);
  const Tensor dquery = filled({Problem::kHidden}, 0);
  ExecContext ctx = ExecContext::cpu();
  const auto dsource_views = views(dsources);
  const AttnResMixBackward op{.dy = p.dy, .sources = p.source_views, .norm_scale = p.scale, .query = p.query, .eps = 1e-5,
                              .dsources = dsource_views, .dnorm_scale = dscale, .dquery = dquery};
  attn_res_mix_backward(ctx, op);
  const auto loss = [&] { return p.loss(); };
  for (int64_t i = 0; i < count; ++i) {
    INFO("source " << i);
    CHECK(testing::gradient_error(p.sources[static_cast<size_t>(i)], dsources[static_cast<size_t>(i)], loss) < 1e-8);
  }
  CHECK(testing::gradient_error(p.scale, dscale, loss) < 1e-8);
  CHECK(testing::gradient_error(p.query, dquery, loss) < 1e-8);

  SECTION("and a second call accumulates into all of them") {
    const std::vector<double> first = testing::to_doubles(dsources[1]);
    const std::vector<double> first_query = testing::to_doubles(dquery);
    attn_res_mix_backward(ctx, op);
    for (size_t i = 0; i < first.size(); ++i) {
      CHECK(dsources[1].values<double>()[i] == Catch::Approx(2 * first[i]).margin(1e-14));
    }
    for (size_t i = 0; i < first_query.size(); ++i) {
      CHECK(dquery.values<double>()[i] == Catch::Approx(2 * first_query[i]).margin(1e-14));
    }
  }
}

TEST_CASE("one source passes through unchanged", "[kernels]") {
  const Problem p(1);
  ExecContext ctx = ExecContext::cpu();
  const Tensor y = filled({Problem::kTokens, Problem::kHidden}, NAN);
  attn_res_mix_forward(ctx, {.sources = p.source_views, .norm_scale = p.scale, .query = p.query, .y = y});
  CHECK(testing::bitwise_equal(y, p.sources[0]));
}

// One run of forward and backward over the tokens [begin, end) of random single-precision sources.
struct FloatRun {
  Tensor y;
  std::vector<Tensor> dsources;
  Tensor dquery = random_tensor(DType::F32, {37}, "earlier dquery");
};
FloatRun run_float(int64_t begin, int64_t end) {
  constexpr int64_t kTokens = 5;
  constexpr int64_t kHidden = 37;
  std::vector<Tensor> sources;
  std::vector<TensorView> cut;
  for (int i = 0; i < 3; ++i) {
    sources.push_back(random_tensor(DType::F32, {kTokens, kHidden}, fmt::format("s{}", i)));
    cut.push_back(sources.back().view().slice(0, begin, end));
  }
  const Tensor scale = random_tensor(DType::F32, {kHidden}, "scale", .1, 1);
  const Tensor query = random_tensor(DType::F32, {kHidden}, "query");
  const Tensor dy = random_tensor(DType::F32, {kTokens, kHidden}, "dy");
  FloatRun run{.y = Tensor(DType::F32, {end - begin, kHidden})};
  for (int i = 0; i < 3; ++i) {
    run.dsources.push_back(Tensor::zeros(DType::F32, {end - begin, kHidden}));
  }
  const Tensor dscale = Tensor::zeros(DType::F32, {kHidden});
  ExecContext ctx = ExecContext::cpu();
  const auto gradients = views(run.dsources);
  attn_res_mix_forward(ctx, {.sources = cut, .norm_scale = scale, .query = query, .y = run.y});
  attn_res_mix_backward(ctx, {.dy = dy.view().slice(0, begin, end), .sources = cut, .norm_scale = scale, .query = query,
                              .dsources = gradients, .dnorm_scale = dscale, .dquery = run.dquery});
  return run;
}

TEST_CASE("a token's mix and gradient do not depend on its neighbours, bit for bit", "[kernels]") {
  const FloatRun whole = run_float(0, 5);
  const FloatRun part = run_float(3, 5);
  CHECK(testing::bitwise_equal(whole.y.view().slice(0, 3, 5), part.y));
  for (size_t i = 0; i < 3; ++i) {
    CHECK(testing::bitwise_equal(whole.dsources[i].view().slice(0, 3, 5), part.dsources[i]));
  }
}

TEST_CASE("no tokens leave the parameter gradients as they are", "[kernels]") {
  const FloatRun empty = run_float(2, 2);
  CHECK(testing::bitwise_equal(empty.dquery, random_tensor(DType::F32, {37}, "earlier dquery")));
}

TEST_CASE("very large scores do not overflow", "[kernels]") {
  Problem p(3);
  for (double& value : p.query.values<double>()) {
    value *= 1e4;
  }
  CHECK(std::isfinite(p.loss()));
}

TEST_CASE("the mix refuses wrong arguments and plans the scratch that it uses", "[kernels]") {
  const Problem p(2);
  ExecContext plan = ExecContext::plan(Device{});
  ExecContext ctx = ExecContext::cpu();
  const Tensor y = filled({Problem::kTokens, Problem::kHidden}, 0);
  AttnResMixForward op{.sources = p.source_views, .norm_scale = p.scale, .query = p.query, .y = y};
  attn_res_mix_forward(plan, op);
  attn_res_mix_forward(ctx, op);
  CHECK(plan.scratch().high_water_bytes() == ctx.scratch().high_water_bytes());
  CHECK(plan.scratch().used_bytes() == 0);
  op.sources = {};
  CHECK_THROWS_AS(attn_res_mix_forward(ctx, op), ShapeError);
  op.sources = p.source_views;
  op.query = y;
  CHECK_THROWS_AS(attn_res_mix_forward(ctx, op), ShapeError);
  std::vector<TensorView> uneven = p.source_views;
  uneven[1] = uneven[1].slice(0, 0, 2);
  op.query = p.query;
  op.sources = uneven;
  CHECK_THROWS_AS(attn_res_mix_forward(plan, op), ShapeError);
  CHECK_THROWS_AS(attn_res_mix_backward(ctx, {.dy = y, .sources = p.source_views, .norm_scale = p.scale, .query = p.query,
                                              .dsources = {}, .dnorm_scale = p.scale, .dquery = p.query}),
                  ShapeError);
}

}  // namespace
}  // namespace longhaul
