// Hand values with and without a gate, finite differences, float against double, errors, planning.
#include "kernels/gated_output/gated_output.h"

#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "kernels/op_test.h"

using namespace longhaul;
using namespace longhaul::testing;
using Catch::Matchers::WithinRel;

TEST_CASE("gated_output multiplies by the sigmoid of the gate", "[gated_output]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor o = Tensor::from<double>({8, -8, 8}, {1, 3});
  const Tensor gate = Tensor::from<double>({0, std::log(3.0), -1000}, {1, 3});
  const Tensor y = poisoned(DType::F64, {1, 3});
  gated_output_forward(ctx, {.o = o, .gate = gate, .y = y});
  CHECK_THAT(y.values<double>()[0], WithinRel(4.0, 1e-14));
  CHECK_THAT(y.values<double>()[1], WithinRel(-6.0, 1e-14));
  CHECK(y.values<double>()[2] == 0);
}

TEST_CASE("gated_output without a gate is the identity", "[gated_output]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor o = random_tensor(DType::F32, {3, 4}, "o"), y = poisoned(DType::F32, {3, 4}), d_o = poisoned(DType::F32, {3, 4});
  gated_output_forward(ctx, {.o = o, .y = y});
  CHECK(bitwise_equal(y, o));
  gated_output_backward(ctx, {.dy = y, .o = o, .d_o = d_o});
  CHECK(bitwise_equal(d_o, y));
}

TEST_CASE("gated_output_backward agrees with finite differences", "[gated_output][grad]") {
  ExecContext ctx = ExecContext::cpu();
  const Shape shape{4, 9};
  const Tensor o = random_tensor(DType::F64, shape, "o"), gate = random_tensor(DType::F64, shape, "gate", 2);
  const Tensor dy = random_tensor(DType::F64, shape, "dy"), y = poisoned(DType::F64, shape);
  const Tensor d_o = poisoned(DType::F64, shape), dgate = poisoned(DType::F64, shape);
  gated_output_backward(ctx, {.dy = dy, .o = o, .gate = gate, .d_o = d_o, .dgate = dgate});
  const auto loss = [&] {
    gated_output_forward(ctx, {.o = o, .gate = gate, .y = y});
    return dot(dy, y);
  };
  CHECK(gradient_error(o, d_o, loss) < 1e-8);
  CHECK(gradient_error(gate, dgate, loss) < 1e-8);
}

TEST_CASE("gated_output in float agrees with double", "[gated_output]") {
  ExecContext ctx = ExecContext::cpu();
  const Shape shape{7, 13};
  const Tensor o = random_tensor(DType::F64, shape, "o"), gate = random_tensor(DType::F64, shape, "gate", 3);
  const Tensor dy = random_tensor(DType::F64, shape, "dy"), y = poisoned(DType::F64, shape);
  const Tensor d_o = poisoned(DType::F64, shape), dgate = poisoned(DType::F64, shape);
  const Tensor o32 = converted(o, DType::F32), gate32 = converted(gate, DType::F32), dy32 = converted(dy, DType::F32);
  const Tensor y32 = poisoned(DType::F32, shape), d_o32 = poisoned(DType::F32, shape), dgate32 = poisoned(DType::F32, shape);
  gated_output_forward(ctx, {.o = o, .gate = gate, .y = y});
  gated_output_backward(ctx, {.dy = dy, .o = o, .gate = gate, .d_o = d_o, .dgate = dgate});
  gated_output_forward(ctx, {.o = o32, .gate = gate32, .y = y32});
  gated_output_backward(ctx, {.dy = dy32, .o = o32, .gate = gate32, .d_o = d_o32, .dgate = dgate32});
  CHECK(difference(y32, y).within(1e-6));
  CHECK(difference(d_o32, d_o).within(1e-6));
  CHECK(difference(dgate32, dgate).within(1e-5));
}

TEST_CASE("gated_output: no tokens, errors, planning", "[gated_output]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor empty(DType::F32, {0, 3}), x = Tensor::zeros(DType::F32, {2, 3}), wrong(DType::F32, {3, 2});
  gated_output_forward(ctx, {.o = empty, .gate = empty, .y = empty});
  gated_output_backward(ctx, {.dy = empty, .o = empty, .gate = empty, .d_o = empty, .dgate = empty});
  check_shape_error("o", [&] { gated_output_forward(ctx, {.o = wrong, .gate = x, .y = x}); });
  check_shape_error("gate", [&] { gated_output_forward(ctx, {.o = x, .gate = wrong, .y = x}); });
  check_shape_error("d_o", [&] { gated_output_backward(ctx, {.dy = x, .o = x, .gate = x, .dgate = x}); });
  check_shape_error("dgate", [&] { gated_output_backward(ctx, {.dy = x, .o = x, .gate = x, .d_o = x}); });
  check_shape_error("dgate", [&] { gated_output_backward(ctx, {.dy = x, .o = x, .d_o = x, .dgate = x}); });
  ExecContext plan = ExecContext::plan(Device{DeviceKind::Cuda, 0});
  const TensorView compute = planned(DType::BF16, {2, 3}), accurate = planned(DType::F32, {2, 3});
  gated_output_forward(plan, {.o = accurate, .gate = compute, .y = compute});
  gated_output_backward(plan, {.dy = compute, .o = accurate, .gate = compute, .d_o = accurate, .dgate = compute});
}
