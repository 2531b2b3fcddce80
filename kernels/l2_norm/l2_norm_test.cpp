// Hand values, the zero vector, finite differences, float against double, errors, planning.
#include "kernels/l2_norm/l2_norm.h"

#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "kernels/op_test.h"

using namespace longhaul;
using namespace longhaul::testing;
using Catch::Matchers::WithinRel;

namespace {

struct Case {
  Tensor x, dy, y, inv_norm, dx;

  Case(DType dtype, const Shape& shape, double stddev = 1)
      : x(converted(random_tensor(DType::F64, shape, "x", stddev), dtype)),
        dy(converted(random_tensor(DType::F64, shape, "dy"), dtype)),
        y(poisoned(dtype, shape)),
        inv_norm(poisoned(dtype, {shape[0], shape[1]})),
        dx(poisoned(dtype, shape)) {}

  void forward(ExecContext& ctx) const { l2_norm_forward(ctx, {.x = x, .y = y, .inv_norm = inv_norm}); }
  void backward(ExecContext& ctx) const { l2_norm_backward(ctx, {.dy = dy, .y = y, .inv_norm = inv_norm, .dx = dx}); }
};

}  // namespace

TEST_CASE("l2_norm divides by the root of the sum, each head by its own", "[l2_norm]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor x = Tensor::from<double>({3, -4, 0, 0}, {1, 2, 2});
  const Tensor y = poisoned(DType::F64, {1, 2, 2}), inv_norm = poisoned(DType::F64, {1, 2});
  l2_norm_forward(ctx, {.x = x, .y = y, .inv_norm = inv_norm});
  CHECK_THAT(y.values<double>()[0], WithinRel(3 / std::sqrt(25 + 1e-6), 1e-15));
  CHECK_THAT(y.values<double>()[1], WithinRel(-4 / std::sqrt(25 + 1e-6), 1e-15));
  CHECK_THAT(inv_norm.values<double>()[1], WithinRel(1000.0, 1e-15));  // the zero vector stays zero
  CHECK(y.values<double>()[2] == 0);
}

TEST_CASE("l2_norm_backward agrees with finite differences, also where eps matters", "[l2_norm][grad]") {
  ExecContext ctx = ExecContext::cpu();
  for (const double stddev : {1.0, 1e-3}) {
    const Case c(DType::F64, {3, 2, 7}, stddev);
    c.forward(ctx);
    c.backward(ctx);
    const Tensor y = poisoned(DType::F64, {3, 2, 7}), inv_norm = poisoned(DType::F64, {3, 2});
    CHECK(gradient_error(c.x, c.dx, [&] {
            l2_norm_forward(ctx, {.x = c.x, .y = y, .inv_norm = inv_norm});
            return dot(c.dy, y);
          }, {.step = 1e-5 * stddev}) < 1e-7);
  }
}

TEST_CASE("l2_norm in float agrees with double and overwrites its outputs", "[l2_norm]") {
  ExecContext ctx = ExecContext::cpu();
  const Case wide(DType::F64, {9, 3, 33}), narrow_case(DType::F32, {9, 3, 33});
  for (const Case* c : {&wide, &narrow_case}) {
    c->forward(ctx);
    c->backward(ctx);
  }
  CHECK(difference(narrow_case.y, wide.y).within(1e-6));
  CHECK(difference(narrow_case.inv_norm, wide.inv_norm).within(1e-6));
  CHECK(difference(narrow_case.dx, wide.dx).within(1e-5));
}

TEST_CASE("l2_norm: no tokens, errors, planning", "[l2_norm]") {
  ExecContext ctx = ExecContext::cpu();
  const Case empty(DType::F32, {0, 2, 4}), c(DType::F32, {3, 2, 4});
  empty.forward(ctx);
  empty.backward(ctx);
  const Tensor wrong(DType::F32, {3, 2, 5}), flat(DType::F32, {6, 4});
  check_shape_error("x", [&] { l2_norm_forward(ctx, {.x = flat, .y = c.y, .inv_norm = c.inv_norm}); });
  check_shape_error("y", [&] { l2_norm_forward(ctx, {.x = c.x, .y = wrong, .inv_norm = c.inv_norm}); });
  check_shape_error("inv_norm", [&] { l2_norm_forward(ctx, {.x = c.x, .y = c.y, .inv_norm = flat}); });
  check_shape_error("dy", [&] { l2_norm_backward(ctx, {.dy = wrong, .y = c.y, .inv_norm = c.inv_norm, .dx = c.dx}); });
  check_shape_error("dy", [&] { l2_norm_backward(ctx, {.dy = Tensor(DType::F64, {3, 2, 4}), .y = c.y, .inv_norm = c.inv_norm, .dx = c.dx}); });
  check_shape_error("dx", [&] { l2_norm_backward(ctx, {.dy = c.dy, .y = c.y, .inv_norm = c.inv_norm, .dx = wrong}); });
  ExecContext plan = ExecContext::plan(Device{DeviceKind::Cuda, 0});
  const TensorView x = planned(DType::BF16, {3, 2, 4}), inv_norm = planned(DType::F32, {3, 2});
  l2_norm_forward(plan, {.x = x, .y = x, .inv_norm = inv_norm});
  l2_norm_backward(plan, {.dy = planned(DType::F32, {3, 2, 4}), .y = x, .inv_norm = inv_norm, .dx = x});
  CHECK(plan.scratch().high_water_bytes() == 0);
}
