// The sums of a known filter, no leak between documents (bitwise), finite differences, float against double, errors.
#include "kernels/short_conv/short_conv.h"

#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "kernels/op_test.h"

using namespace longhaul;
using namespace longhaul::testing;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

// All tensors of one pass over packed documents of 1, 2, 5, 0 and 4 tokens, with a filter of `width` taps.
struct Case {
  static constexpr int64_t kTokens = 12, kChannels = 11;
  Tensor x, weight, cu_seqlens, dy, y, dx, dweight;

  explicit Case(DType dtype, int64_t width = 4)
      : x(converted(random_tensor(DType::F64, {kTokens, kChannels}, "x"), dtype)),
        weight(converted(random_tensor(DType::F64, {kChannels, width}, "weight"), dtype)),
        cu_seqlens(cu_seqlens_of({1, 2, 5, 0, 4})),
        dy(converted(random_tensor(DType::F64, {kTokens, kChannels}, "dy"), dtype)),
        y(poisoned(dtype, {kTokens, kChannels})),
        dx(poisoned(dtype, {kTokens, kChannels})),
        dweight(Tensor::zeros(dtype, {kChannels, width})) {}

  void forward(ExecContext& ctx) const { short_conv_forward(ctx, {.x = x, .weight = weight, .cu_seqlens = cu_seqlens, .y = y}); }
  void backward(ExecContext& ctx) const {
    short_conv_backward(ctx, {.dy = dy, .x = x, .weight = weight, .cu_seqlens = cu_seqlens, .dx = dx, .dweight = dweight});
  }
};

double silu(double x) { return x / (1 + std::exp(-x)); }

}  // namespace

TEST_CASE("the window is reset at a document's start", "[short_conv]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor x = Tensor::from<double>({1, 1, 1, 1, 1, 1}, {6, 1});
  const Tensor weight = Tensor::from<double>({1, 2, 3, 4}, {1, 4});  // oldest tap first
  const Tensor y = poisoned(DType::F64, {6, 1});
  short_conv_forward(ctx, {.x = x, .weight = weight, .cu_seqlens = cu_seqlens_of({3, 3}), .y = y});
  const std::vector<double> sums{4, 7, 9, 4, 7, 9};
  for (size_t t = 0; t < 6; ++t) {
    CHECK_THAT(y.values<double>()[t], WithinRel(silu(sums[t]), 1e-14));
  }
  short_conv_forward(ctx, {.x = x, .weight = weight, .cu_seqlens = cu_seqlens_of({6}), .y = y});
  const std::vector<double> one_document{4, 7, 9, 10, 10, 10};
  for (size_t t = 0; t < 6; ++t) {
    CHECK_THAT(y.values<double>()[t], WithinRel(silu(one_document[t]), 1e-14));
  }
}

TEST_CASE("a document sees nothing of another one, bitwise", "[short_conv]") {
  ExecContext ctx = ExecContext::cpu();
  const Case before(DType::F32), after(DType::F32);
  for (int64_t t = 3; t < 8; ++t) {  // the document of 5 tokens changes, in values and gradients
    set_all(after.x.view()[t], 1e30);
    set_all(after.dy.view()[t], -1e30);
  }
  for (const Case* c : {&before, &after}) {
    c->forward(ctx);
    c->backward(ctx);
  }
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 3}, {8, 12}}) {
    CHECK(bitwise_equal(after.y.view().slice(0, begin, end), before.y.view().slice(0, begin, end)));
    CHECK(bitwise_equal(after.dx.view().slice(0, begin, end), before.dx.view().slice(0, begin, end)));
  }
  CHECK_FALSE(bitwise_equal(after.y.view().slice(0, 3, 8), before.y.view().slice(0, 3, 8)));
}

TEST_CASE("packed documents equal each document on its own, bitwise", "[short_conv]") {
  ExecContext ctx = ExecContext::cpu();
  const Case packed(DType::F32);
  packed.forward(ctx);
  packed.backward(ctx);
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {1, 3}, {3, 8}, {8, 12}}) {
    const Case alone(DType::F32);
    const auto rows = [b = begin, e = end](const Tensor& tensor) { return tensor.view().slice(0, b, e); };
    const Tensor bounds = cu_seqlens_of({end - begin});
    short_conv_forward(ctx, {.x = rows(alone.x), .weight = alone.weight, .cu_seqlens = bounds, .y = rows(alone.y)});
    short_conv_backward(ctx, {.dy = rows(alone.dy), .x = rows(alone.x), .weight = alone.weight, .cu_seqlens = bounds,
                              .dx = rows(alone.dx), .dweight = alone.dweight});
    CHECK(bitwise_equal(rows(alone.y), rows(packed.y)));
    CHECK(bitwise_equal(rows(alone.dx), rows(packed.dx)));
  }
}

TEST_CASE("outputs do not depend on later tokens, bitwise", "[short_conv]") {
  ExecContext ctx = ExecContext::cpu();
  const Case before(DType::F32), after(DType::F32);
  before.forward(ctx);
  set_all(after.x.view()[6], 1e30);
  after.forward(ctx);
  CHECK(bitwise_equal(after.y.view().slice(0, 0, 6), before.y.view().slice(0, 0, 6)));
}

TEST_CASE("short_conv_backward agrees with finite differences", "[short_conv][grad]") {
  ExecContext ctx = ExecContext::cpu();
  for (const int64_t width : {1, 2, 4, 7}) {
    const Case c(DType::F64, width);
    c.backward(ctx);
    const auto loss = [&] {
      c.forward(ctx);
      return dot(c.dy, c.y);
    };
    CHECK(gradient_error(c.x, c.dx, loss, {.max_elements = 132}) < 1e-7);
    CHECK(gradient_error(c.weight, c.dweight, loss) < 1e-7);
  }
}

TEST_CASE("short_conv accumulates dweight and overwrites dx", "[short_conv]") {
  ExecContext ctx = ExecContext::cpu();
  const Case c(DType::F64);
  c.backward(ctx);
  const Tensor dx = converted(c.dx, DType::F64), dweight = converted(c.dweight, DType::F64);
  c.backward(ctx);
  CHECK(bitwise_equal(c.dx, dx));
  for (size_t i = 0; i < dweight.values<double>().size(); ++i) {
    CHECK_THAT(c.dweight.values<double>()[i], WithinAbs(2 * dweight.values<double>()[i], 1e-13));
  }
}

TEST_CASE("short_conv in float agrees with double", "[short_conv]") {
  ExecContext ctx = ExecContext::cpu();
  const Case wide(DType::F64), narrow_case(DType::F32);
  for (const Case* c : {&wide, &narrow_case}) {
    c->forward(ctx);
    c->backward(ctx);
  }
  CHECK(difference(narrow_case.y, wide.y).within(1e-6));
  CHECK(difference(narrow_case.dx, wide.dx).within(1e-5));
  CHECK(difference(narrow_case.dweight, wide.dweight).within(1e-5));
}

TEST_CASE("short_conv of no tokens", "[short_conv]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor empty(DType::F32, {0, 3}), weight = random_tensor(DType::F32, {3, 4}, "weight");
  const Tensor dweight = Tensor::zeros(DType::F32, {3, 4});
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{}, std::vector<int64_t>{0}}) {
    short_conv_forward(ctx, {.x = empty, .weight = weight, .cu_seqlens = cu_seqlens_of(lengths), .y = empty});
    short_conv_backward(ctx, {.dy = empty, .x = empty, .weight = weight, .cu_seqlens = cu_seqlens_of(lengths), .dx = empty, .dweight = dweight});
  }
  CHECK(to_doubles(dweight) == std::vector<double>(12, 0.0));
}

TEST_CASE("short_conv names the argument that is wrong", "[short_conv]") {
  ExecContext ctx = ExecContext::cpu();
  const Case c(DType::F32);
  const Tensor wrong(DType::F32, {12, 4});
  check_shape_error("weight", [&] { short_conv_forward(ctx, {.x = c.x, .weight = wrong, .cu_seqlens = c.cu_seqlens, .y = c.y}); });
  check_shape_error("y", [&] { short_conv_forward(ctx, {.x = c.x, .weight = c.weight, .cu_seqlens = c.cu_seqlens, .y = wrong}); });
  check_shape_error("cu_seqlens", [&] { short_conv_forward(ctx, {.x = c.x, .weight = c.weight, .cu_seqlens = wrong, .y = c.y}); });
  for (const std::vector<int64_t>& bounds : {std::vector<int64_t>{0, 11}, {1, 12}, {0, 9, 4, 12}, {0, 13}}) {
    const Tensor bad = Tensor::from(bounds, {static_cast<int64_t>(bounds.size())});
    check_shape_error("cu_seqlens", [&] { short_conv_forward(ctx, {.x = c.x, .weight = c.weight, .cu_seqlens = bad, .y = c.y}); });
  }
  check_shape_error("dy", [&] {
    short_conv_backward(ctx, {.dy = wrong, .x = c.x, .weight = c.weight, .cu_seqlens = c.cu_seqlens, .dx = c.dx, .dweight = c.dweight});
  });
  check_shape_error("dweight", [&] {
    short_conv_backward(ctx, {.dy = c.dy, .x = c.x, .weight = c.weight, .cu_seqlens = c.cu_seqlens, .dx = c.dx, .dweight = wrong});
  });
}

TEST_CASE("short_conv plans the scratch that it uses", "[short_conv]") {
  const auto cu = planned(DType::I64, {6});
  const auto x = planned(DType::F32, {Case::kTokens, Case::kChannels}), weight = planned(DType::F32, {Case::kChannels, 4});
  ExecContext plan = ExecContext::plan(Device{}), run = ExecContext::cpu();
  const Case c(DType::F32);
  short_conv_forward(plan, {.x = x, .weight = weight, .cu_seqlens = cu, .y = x});
  c.forward(run);
  CHECK(plan.scratch().high_water_bytes() == run.scratch().high_water_bytes());
  short_conv_backward(plan, {.dy = x, .x = x, .weight = weight, .cu_seqlens = cu, .dx = x, .dweight = weight});
  c.backward(run);
  CHECK(plan.scratch().high_water_bytes() == run.scratch().high_water_bytes());
  CHECK(plan.scratch().used_bytes() == 0);
}
