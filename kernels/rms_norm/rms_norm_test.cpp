// Closed form, finite differences, float against double, strided rows, accumulation, errors, planning.
#include "kernels/rms_norm/rms_norm.h"

#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "kernels/op_test.h"

using namespace longhaul;
using namespace longhaul::testing;
using Catch::Matchers::WithinRel;

namespace {

// All tensors of one forward and backward pass over [rows, dim].
struct Case {
  Tensor x, scale, dy, y, inv_rms, dx, dscale;

  Case(DType dtype, int64_t rows, int64_t dim)
      : x(converted(random_tensor(DType::F64, {rows, dim}, "x", 2.0, 0.5), dtype)),
        scale(converted(random_tensor(DType::F64, {dim}, "scale", 0.3, 1.0), dtype)),
        dy(converted(random_tensor(DType::F64, {rows, dim}, "dy"), dtype)),
        y(poisoned(dtype, {rows, dim})),
        inv_rms(poisoned(dtype, {rows})),
        dx(poisoned(dtype, {rows, dim})),
        dscale(Tensor::zeros(dtype, {dim})) {}

  void forward(ExecContext& ctx) const { rms_norm_forward(ctx, {.x = x, .scale = scale, .eps = 1e-2, .y = y, .inv_rms = inv_rms}); }
  void backward(ExecContext& ctx) const {
    rms_norm_backward(ctx, {.dy = dy, .x = x, .scale = scale, .inv_rms = inv_rms, .dx = dx, .dscale = dscale});
  }
};

}  // namespace

TEST_CASE("rms_norm of a row worked by hand", "[rms_norm]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor x = Tensor::from<double>({3, -4, 0, 0}, {1, 4});  // mean square 25 / 4
  const Tensor scale = Tensor::from<double>({1, 2, 3, 4}, {4});
  const Tensor y = poisoned(DType::F64, {1, 4}), inv_rms = poisoned(DType::F64, {1});
  rms_norm_forward(ctx, {.x = x, .scale = scale, .eps = 2.75, .y = y, .inv_rms = inv_rms});  // 1 / sqrt(9)
  CHECK_THAT(inv_rms.values<double>()[0], WithinRel(1.0 / 3.0, 1e-15));
  CHECK_THAT(y.values<double>()[0], WithinRel(1.0, 1e-15));
  CHECK_THAT(y.values<double>()[1], WithinRel(-8.0 / 3.0, 1e-15));
  CHECK(y.values<double>()[2] == 0);
}

TEST_CASE("rms_norm_backward agrees with finite differences", "[rms_norm][grad]") {
  ExecContext ctx = ExecContext::cpu();
  const Case c(DType::F64, 5, 13);
  const auto loss = [&] {
    c.forward(ctx);
    return dot(c.dy, c.y);
  };
  c.forward(ctx);
  c.backward(ctx);
  CHECK(gradient_error(c.x, c.dx, loss) < 1e-7);
  CHECK(gradient_error(c.scale, c.dscale, loss) < 1e-7);
}

TEST_CASE("rms_norm accumulates dscale and overwrites dx", "[rms_norm]") {
  ExecContext ctx = ExecContext::cpu();
  const Case c(DType::F64, 3, 9);
  c.forward(ctx);
  c.backward(ctx);
  const Tensor dx = converted(c.dx, DType::F64), dscale = converted(c.dscale, DType::F64);
  c.backward(ctx);
  CHECK(bitwise_equal(c.dx, dx));
  for (size_t i = 0; i < 9; ++i) {
    CHECK_THAT(c.dscale.values<double>()[i], WithinRel(2 * dscale.values<double>()[i], 1e-14));
  }
}

TEST_CASE("rms_norm in float agrees with double", "[rms_norm]") {
  ExecContext ctx = ExecContext::cpu();
  const Case wide(DType::F64, 40, 67), narrow_case(DType::F32, 40, 67);
  for (const Case* c : {&wide, &narrow_case}) {
    c->forward(ctx);
    c->backward(ctx);
  }
  CHECK(difference(narrow_case.y, wide.y).within(1e-6));
  CHECK(difference(narrow_case.dx, wide.dx).within(1e-5));
  CHECK(difference(narrow_case.dscale, wide.dscale).within(1e-5));
}

TEST_CASE("rms_norm works on slices of columns", "[rms_norm]") {
  ExecContext ctx = ExecContext::cpu();
  const Case c(DType::F32, 4, 10);
  c.forward(ctx);
  c.backward(ctx);
  const StridedMatrix x(c.x, 3, 2);
  const StridedMatrix dx(Tensor::zeros(DType::F32, {4, 10}), 1, 6);
  const Tensor y = poisoned(DType::F32, {4, 10}), dscale = Tensor::zeros(DType::F32, {10});
  rms_norm_forward(ctx, {.x = x.view, .scale = c.scale, .eps = 1e-2, .y = y, .inv_rms = c.inv_rms});
  rms_norm_backward(ctx, {.dy = c.dy, .x = x.view, .scale = c.scale, .inv_rms = c.inv_rms, .dx = dx.view, .dscale = dscale});
  CHECK(bitwise_equal(y, c.y));
  CHECK(bitwise_equal(dx.contiguous(), c.dx));
  CHECK(bitwise_equal(dscale, c.dscale));
  CHECK(dx.surroundings_untouched());
}

TEST_CASE("rms_norm of no rows", "[rms_norm]") {
  ExecContext ctx = ExecContext::cpu();
  const Case c(DType::F32, 0, 8);
  c.forward(ctx);
  c.backward(ctx);
  CHECK(to_doubles(c.dscale) == std::vector<double>(8, 0.0));
}

TEST_CASE("rms_norm names the argument that is wrong", "[rms_norm]") {
  ExecContext ctx = ExecContext::cpu();
  const Case c(DType::F32, 2, 4);
  const Tensor wrong(DType::F32, {3, 4});
  check_shape_error("scale", [&] { rms_norm_forward(ctx, {.x = c.x, .scale = wrong, .y = c.y, .inv_rms = c.inv_rms}); });
  check_shape_error("y", [&] { rms_norm_forward(ctx, {.x = c.x, .scale = c.scale, .y = wrong, .inv_rms = c.inv_rms}); });
  check_shape_error("inv_rms", [&] { rms_norm_forward(ctx, {.x = c.x, .scale = c.scale, .y = c.y}); });
  check_shape_error("dx", [&] {
    rms_norm_backward(ctx, {.dy = c.dy, .x = c.x, .scale = c.scale, .inv_rms = c.inv_rms, .dx = wrong, .dscale = c.dscale});
  });
  check_shape_error("dscale", [&] {
    rms_norm_backward(ctx, {.dy = c.dy, .x = c.x, .scale = c.scale, .inv_rms = c.inv_rms, .dx = c.dx, .dscale = wrong});
  });
}

TEST_CASE("rms_norm plans the scratch that it uses", "[rms_norm]") {
  ExecContext plan = ExecContext::plan(Device{});
  const TensorView x = planned(DType::F32, {6, 100}), dim = planned(DType::F32, {100}), rows = planned(DType::F32, {6});
  rms_norm_forward(plan, {.x = x, .scale = dim, .y = x, .inv_rms = rows});
  rms_norm_backward(plan, {.dy = x, .x = x, .scale = dim, .inv_rms = rows, .dx = x, .dscale = dim});
  ExecContext run = ExecContext::cpu();
  const Case c(DType::F32, 6, 100);
  c.forward(run);
  c.backward(run);
  CHECK(plan.scratch().high_water_bytes() == run.scratch().high_water_bytes());
  CHECK(plan.scratch().used_bytes() == 0);
}
