// Closed form, both tails, finite differences, float against double, errors, planning.
#include "kernels/sigmoid/sigmoid.h"

#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "kernels/op_test.h"

using namespace longhaul;
using namespace longhaul::testing;
using Catch::Matchers::WithinRel;

TEST_CASE("sigmoid at known points and in both tails", "[sigmoid]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor x = Tensor::from<double>({0, std::log(3.0), -std::log(3.0), -700, 700}, {5});
  const Tensor y = poisoned(DType::F64, {5});
  sigmoid_forward(ctx, {.x = x, .y = y});
  CHECK(y.values<double>()[0] == 0.5);
  CHECK_THAT(y.values<double>()[1], WithinRel(0.75, 1e-15));
  CHECK_THAT(y.values<double>()[2], WithinRel(0.25, 1e-15));
  CHECK_THAT(y.values<double>()[3], WithinRel(std::exp(-700.0), 1e-14));
  CHECK(y.values<double>()[4] == 1);
}

TEST_CASE("sigmoid_backward agrees with finite differences", "[sigmoid][grad]") {
  ExecContext ctx = ExecContext::cpu();
  const Shape shape{5, 3};
  const Tensor x = random_tensor(DType::F64, shape, "x", 2), dy = random_tensor(DType::F64, shape, "dy");
  const Tensor y = poisoned(DType::F64, shape), dx = poisoned(DType::F64, shape), scratch = poisoned(DType::F64, shape);
  sigmoid_forward(ctx, {.x = x, .y = y});
  sigmoid_backward(ctx, {.dy = dy, .y = y, .dx = dx});
  CHECK(gradient_error(x, dx, [&] {
          sigmoid_forward(ctx, {.x = x, .y = scratch});
          return dot(dy, scratch);
        }) < 1e-8);
}

TEST_CASE("sigmoid in float agrees with double", "[sigmoid]") {
  ExecContext ctx = ExecContext::cpu();
  const Shape shape{7, 5};
  const Tensor x = random_tensor(DType::F64, shape, "x", 3), dy = random_tensor(DType::F64, shape, "dy");
  const Tensor y = poisoned(DType::F64, shape), dx = poisoned(DType::F64, shape);
  const Tensor y32 = poisoned(DType::F32, shape), dx32 = poisoned(DType::F32, shape);
  sigmoid_forward(ctx, {.x = x, .y = y});
  sigmoid_backward(ctx, {.dy = dy, .y = y, .dx = dx});
  sigmoid_forward(ctx, {.x = converted(x, DType::F32), .y = y32});
  sigmoid_backward(ctx, {.dy = converted(dy, DType::F32), .y = y32, .dx = dx32});
  CHECK(difference(y32, y).within(1e-6));
  CHECK(difference(dx32, dx).within(1e-5));
}

TEST_CASE("sigmoid: no elements, errors, planning", "[sigmoid]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor empty(DType::F32, {0, 3}), x(DType::F32, {2, 3}), wrong(DType::F32, {3, 2});
  sigmoid_forward(ctx, {.x = empty, .y = empty});
  sigmoid_backward(ctx, {.dy = empty, .y = empty, .dx = empty});
  check_shape_error("y", [&] { sigmoid_forward(ctx, {.x = x, .y = wrong}); });
  check_shape_error("y", [&] { sigmoid_forward(ctx, {.x = x, .y = Tensor(DType::F64, {2, 3})}); });
  check_shape_error("dy", [&] { sigmoid_backward(ctx, {.dy = wrong, .y = x, .dx = x}); });
  check_shape_error("dx", [&] { sigmoid_backward(ctx, {.dy = x, .y = x}); });
  ExecContext plan = ExecContext::plan(Device{DeviceKind::Cuda, 0});
  sigmoid_forward(plan, {.x = planned(DType::BF16, {2, 3}), .y = planned(DType::F32, {2, 3})});
  sigmoid_backward(plan, {.dy = planned(DType::F32, {2, 3}), .y = planned(DType::F32, {2, 3}), .dx = planned(DType::BF16, {2, 3})});
}
