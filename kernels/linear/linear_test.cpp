// Products against hand values and finite differences; strided rows, accumulation, empty inputs, errors, planning.
#include "kernels/linear/linear.h"

#include "kernels/op_test.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("linear_forward of a small matrix", "[linear]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor x = Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor weight = Tensor::from<double>({1, 0, -1, 2, 1, 0}, {2, 3});
  const Tensor y = poisoned(DType::F64, {2, 2});
  linear_forward(ctx, {.x = x, .weight = weight, .y = y});
  CHECK(to_doubles(y) == std::vector<double>{-2, 4, -2, 13});
  linear_forward(ctx, {.x = x, .weight = weight, .y = y, .accumulate = Accumulate::Add});
  CHECK(to_doubles(y) == std::vector<double>{-4, 8, -4, 26});
}

TEST_CASE("linear_backward agrees with finite differences", "[linear][grad]") {
  ExecContext ctx = ExecContext::cpu();
  const int64_t tokens = 5, in = 7, out = 4;
  const Tensor x = random_tensor(DType::F64, {tokens, in}, "x");
  const Tensor weight = random_tensor(DType::F64, {out, in}, "weight");
  const Tensor dy = random_tensor(DType::F64, {tokens, out}, "dy");
  const Tensor y = poisoned(DType::F64, {tokens, out});
  const Tensor dx = poisoned(DType::F64, {tokens, in});
  const Tensor dweight = Tensor::zeros(DType::F64, {out, in});
  const auto loss = [&] {
    linear_forward(ctx, {.x = x, .weight = weight, .y = y});
    return dot(dy, y);
  };
  linear_backward(ctx, {.dy = dy, .x = x, .weight = weight, .dx = dx, .dweight = dweight});
  CHECK(gradient_error(x, dx, loss) < 1e-8);
  CHECK(gradient_error(weight, dweight, loss) < 1e-8);
}

TEST_CASE("linear accumulates weight gradients, and dx only when asked", "[linear]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor x = random_tensor(DType::F32, {3, 4}, "x");
  const Tensor weight = random_tensor(DType::F32, {2, 4}, "weight");
  const Tensor dy = random_tensor(DType::F32, {3, 2}, "dy");
  const Tensor once = Tensor::zeros(DType::F64, {2, 4});
  const Tensor twice = Tensor::zeros(DType::F64, {2, 4});
  const Tensor dx = poisoned(DType::F32, {3, 4});
  const Tensor dx_twice = Tensor::zeros(DType::F32, {3, 4});
  linear_backward(ctx, {.dy = dy, .x = x, .weight = weight, .dx = dx, .dweight = once});
  for (int i = 0; i < 2; ++i) {
    linear_backward(ctx, {.dy = dy, .x = x, .weight = weight, .dx = dx_twice, .dweight = twice, .accumulate_dx = Accumulate::Add});
  }
  for (size_t i = 0; i < 8; ++i) {
    CHECK(std::abs(twice.values<double>()[i] - 2 * once.values<double>()[i]) < 1e-14);
  }
  for (size_t i = 0; i < 12; ++i) {
    CHECK(std::abs(dx_twice.values<float>()[i] - 2 * dx.values<float>()[i]) < 1e-6f);
  }
  // Each output can be left out.
  linear_backward(ctx, {.dy = dy, .x = x, .weight = weight, .dweight = twice});
  linear_backward(ctx, {.dy = dy, .x = x, .weight = weight, .dx = dx});
}

TEST_CASE("linear reads and writes slices of wider tensors", "[linear]") {
  ExecContext ctx = ExecContext::cpu();
  const int64_t tokens = 4, in = 5, out = 3;
  const Tensor x = random_tensor(DType::F64, {tokens, in}, "x");
  const Tensor weight = random_tensor(DType::F64, {out, in}, "weight");
  const Tensor dy = random_tensor(DType::F64, {tokens, out}, "dy");
  const Tensor y = poisoned(DType::F64, {tokens, out});
  const Tensor dx = poisoned(DType::F64, {tokens, in});
  const Tensor dweight = Tensor::zeros(DType::F64, {out, in});
  linear_forward(ctx, {.x = x, .weight = weight, .y = y});
  linear_backward(ctx, {.dy = dy, .x = x, .weight = weight, .dx = dx, .dweight = dweight});

  const StridedMatrix wide_x(x, 2, 1), wide_dy(dy, 0, 4), wide_y(y, 1, 1), wide_dx(dx, 3, 0);
  set_all(y, 0);
  for (int64_t t = 0; t < tokens; ++t) {
    set_all(wide_y.view[t], std::numeric_limits<double>::quiet_NaN());
    set_all(wide_dx.view[t], std::numeric_limits<double>::quiet_NaN());
  }
  const Tensor wide_dweight = Tensor::zeros(DType::F64, {out, in});
  linear_forward(ctx, {.x = wide_x.view, .weight = weight, .y = wide_y.view});
  linear_backward(ctx, {.dy = wide_dy.view, .x = wide_x.view, .weight = weight, .dx = wide_dx.view, .dweight = wide_dweight});
  linear_forward(ctx, {.x = x, .weight = weight, .y = y});
  CHECK(difference(wide_y.view, y).within(1e-14));
  CHECK(difference(wide_dx.view, dx).within(1e-14));
  CHECK(difference(wide_dweight, dweight).within(1e-14));
  CHECK(wide_y.surroundings_untouched());
  CHECK(wide_dx.surroundings_untouched());
}

TEST_CASE("linear in float agrees with double", "[linear]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor x = random_tensor(DType::F64, {9, 33}, "x");
  const Tensor weight = random_tensor(DType::F64, {17, 33}, "weight");
  const Tensor y = poisoned(DType::F64, {9, 17});
  const Tensor y_float = poisoned(DType::F32, {9, 17});
  linear_forward(ctx, {.x = x, .weight = weight, .y = y});
  linear_forward(ctx, {.x = converted(x, DType::F32), .weight = converted(weight, DType::F32), .y = y_float});
  CHECK(difference(y_float, y).within(1e-5));
}

TEST_CASE("linear of no tokens leaves weight gradients alone", "[linear]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor x(DType::F32, {0, 4}), dy(DType::F32, {0, 2});
  const Tensor weight = random_tensor(DType::F32, {2, 4}, "weight");
  const Tensor dweight = random_tensor(DType::F64, {2, 4}, "dweight");
  const Tensor before = converted(dweight, DType::F64);
  linear_forward(ctx, {.x = x, .weight = weight, .y = dy});
  linear_backward(ctx, {.dy = dy, .x = x, .weight = weight, .dx = x, .dweight = dweight});
  CHECK(bitwise_equal(dweight, before));
}

TEST_CASE("linear names the argument that is wrong", "[linear]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor x(DType::F32, {3, 4}), weight(DType::F32, {2, 4}), y(DType::F32, {3, 2}), other(DType::F32, {3, 5});
  check_shape_error("weight", [&] { linear_forward(ctx, {.x = other, .weight = weight, .y = y}); });
  check_shape_error("y", [&] { linear_forward(ctx, {.x = x, .weight = weight, .y = other}); });
  check_shape_error("y", [&] { linear_forward(ctx, {.x = x, .weight = weight, .y = Tensor(DType::F64, {3, 2})}); });
  check_shape_error("x", [&] { linear_forward(ctx, {.weight = weight, .y = y}); });
  check_shape_error("dy", [&] { linear_backward(ctx, {.dy = Tensor(DType::F32, {4, 2}), .x = x, .weight = weight}); });
  check_shape_error("dx", [&] { linear_backward(ctx, {.dy = y, .x = x, .weight = weight, .dx = other}); });
  check_shape_error("dweight", [&] { linear_backward(ctx, {.dy = y, .x = x, .weight = weight, .dweight = other}); });
}

TEST_CASE("linear plans without data, and for types of the GPU", "[linear]") {
  ExecContext ctx = ExecContext::plan(Device{DeviceKind::Cuda, 0});
  const DType bf16 = DType::BF16;
  linear_forward(ctx, {.x = planned(bf16, {3, 4}), .weight = planned(bf16, {2, 4}), .y = planned(bf16, {3, 2})});
  linear_backward(ctx, {.dy = planned(bf16, {3, 2}), .x = planned(bf16, {3, 4}), .weight = planned(bf16, {2, 4}),
                        .dx = planned(bf16, {3, 4}), .dweight = planned(DType::F32, {2, 4})});
  CHECK(ctx.scratch().high_water_bytes() == 0);
}
