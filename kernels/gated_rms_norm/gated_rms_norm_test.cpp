// Hand values, finite differences of every gradient, float against double, accumulation, errors, planning.
#include "kernels/gated_rms_norm/gated_rms_norm.h"

#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "kernels/op_test.h"

using namespace longhaul;
using namespace longhaul::testing;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

constexpr int64_t kHeads = 3, kDim = 11;

struct Case {
  Tensor o, scale, gate, dy, y, inv_rms, d_o, dgate, dscale;

  explicit Case(DType dtype, int64_t tokens = 4)
      : o(converted(random_tensor(DType::F64, {tokens, kHeads, kDim}, "o", 0.5), dtype)),
        scale(converted(random_tensor(DType::F64, {kDim}, "scale", 0.3, 1), dtype)),
        gate(converted(random_tensor(DType::F64, {tokens, kHeads * kDim}, "gate", 2), dtype)),
        dy(converted(random_tensor(DType::F64, {tokens, kHeads * kDim}, "dy"), dtype)),
        y(poisoned(dtype, {tokens, kHeads * kDim})),
        inv_rms(poisoned(dtype, {tokens, kHeads})),
        d_o(poisoned(dtype, {tokens, kHeads, kDim})),
        dgate(poisoned(dtype, {tokens, kHeads * kDim})),
        dscale(Tensor::zeros(dtype, {kDim})) {}

  void forward(ExecContext& ctx) const {
    gated_rms_norm_forward(ctx, {.o = o, .scale = scale, .gate = gate, .eps = 1e-2, .y = y, .inv_rms = inv_rms});
  }
  void backward(ExecContext& ctx) const {
    gated_rms_norm_backward(ctx, {.dy = dy, .o = o, .scale = scale, .gate = gate, .inv_rms = inv_rms, .d_o = d_o, .dgate = dgate, .dscale = dscale});
  }
};

}  // namespace

TEST_CASE("each head is normalised on its own, scaled by one vector and gated", "[gated_rms_norm]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor o = Tensor::from<double>({3, -4, 10, 0}, {1, 2, 2});  // mean squares 12.5 and 50
  const Tensor scale = Tensor::from<double>({1, 2}, {2});
  const Tensor gate = Tensor::from<double>({0, std::log(3.0), -std::log(3.0), 7}, {1, 4});  // 1/2, 3/4, 1/4
  const Tensor y = poisoned(DType::F64, {1, 4}), inv_rms = poisoned(DType::F64, {1, 2});
  gated_rms_norm_forward(ctx, {.o = o, .scale = scale, .gate = gate, .eps = 0, .y = y, .inv_rms = inv_rms});
  CHECK_THAT(y.values<double>()[0], WithinRel(3 / std::sqrt(12.5) * 0.5, 1e-14));
  CHECK_THAT(y.values<double>()[1], WithinRel(-4 / std::sqrt(12.5) * 2 * 0.75, 1e-14));
  CHECK_THAT(y.values<double>()[2], WithinRel(10 / std::sqrt(50.0) * 0.25, 1e-14));
  CHECK(y.values<double>()[3] == 0);
  CHECK_THAT(inv_rms.values<double>()[1], WithinRel(1 / std::sqrt(50.0), 1e-14));
}

TEST_CASE("gated_rms_norm_backward agrees with finite differences", "[gated_rms_norm][grad]") {
  ExecContext ctx = ExecContext::cpu();
  const Case c(DType::F64);
  const auto loss = [&] {
    c.forward(ctx);
    return dot(c.dy, c.y);
  };
  c.forward(ctx);
  c.backward(ctx);
  CHECK(gradient_error(c.o, c.d_o, loss) < 1e-7);
  CHECK(gradient_error(c.gate, c.dgate, loss) < 1e-7);
  CHECK(gradient_error(c.scale, c.dscale, loss) < 1e-7);
}

TEST_CASE("gated_rms_norm accumulates dscale and overwrites the rest", "[gated_rms_norm]") {
  ExecContext ctx = ExecContext::cpu();
  const Case once(DType::F64), twice(DType::F64);
  for (const Case* c : {&once, &twice}) {
    c->forward(ctx);
    c->backward(ctx);
  }
  twice.backward(ctx);
  CHECK(bitwise_equal(once.d_o, twice.d_o));
  CHECK(bitwise_equal(once.dgate, twice.dgate));
  for (size_t i = 0; i < kDim; ++i) {
    CHECK_THAT(twice.dscale.values<double>()[i], WithinAbs(2 * once.dscale.values<double>()[i], 1e-13));
  }
}

TEST_CASE("gated_rms_norm in float agrees with double", "[gated_rms_norm]") {
  ExecContext ctx = ExecContext::cpu();
  const Case wide(DType::F64, 30), narrow_case(DType::F32, 30);
  for (const Case* c : {&wide, &narrow_case}) {
    c->forward(ctx);
    c->backward(ctx);
  }
  CHECK(difference(narrow_case.y, wide.y).within(1e-6));
  CHECK(difference(narrow_case.d_o, wide.d_o).within(1e-5));
  CHECK(difference(narrow_case.dgate, wide.dgate).within(1e-5));
  CHECK(difference(narrow_case.dscale, wide.dscale).within(1e-5));
}

TEST_CASE("gated_rms_norm: no tokens, errors, planning", "[gated_rms_norm]") {
  ExecContext ctx = ExecContext::cpu();
  const Case empty(DType::F32, 0), c(DType::F32);
  empty.forward(ctx);
  empty.backward(ctx);
  CHECK(to_doubles(empty.dscale) == std::vector<double>(kDim, 0.0));
  const Tensor wrong(DType::F32, {4, 5});
  check_shape_error("scale", [&] { gated_rms_norm_forward(ctx, {.o = c.o, .scale = wrong, .gate = c.gate, .y = c.y, .inv_rms = c.inv_rms}); });
  check_shape_error("gate", [&] { gated_rms_norm_forward(ctx, {.o = c.o, .scale = c.scale, .gate = wrong, .y = c.y, .inv_rms = c.inv_rms}); });
  check_shape_error("inv_rms", [&] { gated_rms_norm_forward(ctx, {.o = c.o, .scale = c.scale, .gate = c.gate, .y = c.y, .inv_rms = wrong}); });
  check_shape_error("dgate", [&] {
    gated_rms_norm_backward(ctx, {.dy = c.dy, .o = c.o, .scale = c.scale, .gate = c.gate, .inv_rms = c.inv_rms, .d_o = c.d_o, .dscale = c.dscale});
  });
  ExecContext plan = ExecContext::plan(Device{}), run = ExecContext::cpu();
  const TensorView o = planned(DType::F32, {4, kHeads, kDim}), flat = planned(DType::F32, {4, kHeads * kDim});
  const TensorView scale = planned(DType::F32, {kDim}), inv_rms = planned(DType::F32, {4, kHeads});
  gated_rms_norm_forward(plan, {.o = o, .scale = scale, .gate = flat, .y = flat, .inv_rms = inv_rms});
  gated_rms_norm_backward(plan, {.dy = flat, .o = o, .scale = scale, .gate = flat, .inv_rms = inv_rms, .d_o = o, .dgate = flat, .dscale = scale});
  c.forward(run);
  c.backward(run);
  CHECK(plan.scratch().high_water_bytes() == run.scratch().high_water_bytes());
  CHECK(plan.scratch().used_bytes() == 0);
}
