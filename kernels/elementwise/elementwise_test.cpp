// Each small operation against hand values, over types, strides and empty tensors.
#include "kernels/elementwise/elementwise.h"

#include "kernels/op_test.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("fill writes every element of every type", "[elementwise]") {
  ExecContext ctx = ExecContext::cpu();
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::I64, DType::I32, DType::U8}) {
    const Tensor x(dtype, {3, 5});
    fill(ctx, x, 7);
    CHECK(to_doubles(x) == std::vector<double>(15, 7.0));
  }
  fill(ctx, Tensor(DType::F32, {0, 5}), 1);
}

TEST_CASE("copy converts between float types with rounding to nearest even", "[elementwise]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor source = Tensor::from<float>({1.0f, 1.00390625f, 1.01171875f, -3.0f}, {2, 2});
  const Tensor bf16(DType::BF16, {2, 2});
  copy(ctx, source, bf16);
  CHECK(to_doubles(bf16) == std::vector<double>{1.0, 1.0, 1.015625, -3.0});  // halves of a unit go to the even neighbour
  const Tensor wide(DType::F64, {2, 2});
  copy(ctx, bf16, wide);
  CHECK(to_doubles(wide) == std::vector<double>{1.0, 1.0, 1.015625, -3.0});
  const Tensor ids = Tensor::from<int32_t>({4, 5, 6}, {3});
  const Tensor ids_copy(DType::I32, {3});
  copy(ctx, ids, ids_copy);
  CHECK(to_doubles(ids_copy) == std::vector<double>{4, 5, 6});
}

TEST_CASE("copy between strided views touches nothing else", "[elementwise]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor x = random_tensor(DType::F32, {4, 3}, "x");
  const StridedMatrix from(x, 1, 2);
  const StridedMatrix to(Tensor::zeros(DType::F32, {4, 3}), 2, 2);
  copy(ctx, from.view, to.view);
  CHECK(bitwise_equal(to.contiguous(), x));
  CHECK(to.surroundings_untouched());

  // The middle heads of [tokens, heads, dim], into another type.
  const Tensor heads = random_tensor(DType::F32, {3, 4, 2}, "heads");
  const Tensor middle(DType::F64, {3, 2, 2});
  copy(ctx, heads.view().slice(1, 1, 3), middle);
  CHECK(to_doubles(middle) == to_doubles(heads.view().slice(1, 1, 3)));
}

TEST_CASE("add accumulates in the type of y", "[elementwise]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor x = Tensor::from<float>({1, 2, -3}, {3});
  const Tensor y = Tensor::from<double>({0.5, 1e-12, 3}, {3});
  add(ctx, x, y);
  CHECK(to_doubles(y) == std::vector<double>{1.5, 2.000000000001, 0});
  const Tensor bf16(DType::BF16, {3});
  copy(ctx, y, bf16);
  const Tensor total = Tensor::from<float>({10, 10, 10}, {3});
  add(ctx, bf16, total);
  CHECK(to_doubles(total) == std::vector<double>{11.5, 12, 10});
}

TEST_CASE("scale multiplies in place", "[elementwise]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor x = Tensor::from<double>({1, -2, 0}, {3});
  scale(ctx, x, -0.5);
  CHECK(to_doubles(x) == std::vector<double>{-0.5, 1, 0});
}

TEST_CASE("add_sum_of_squares keeps small terms and has one order", "[elementwise]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor sum = Tensor::from<double>({100}, {1});
  add_sum_of_squares(ctx, Tensor::from<float>({3, 4}, {2}), sum);
  CHECK(sum.values<double>()[0] == 125);

  const Tensor ones(DType::F32, {5000});
  fill(ctx, ones, 1);
  ones.values<float>()[0] = 4096;  // its square swallows ones in float
  const Tensor total = Tensor::zeros(DType::F64, {1});
  add_sum_of_squares(ctx, ones, total);
  CHECK(total.values<double>()[0] == 16777216.0 + 4999.0);

  // Whole blocks of 1024 can be summed on their own: the order inside a block does not depend on where it is.
  const Tensor x = random_tensor(DType::F32, {2048}, "x");
  const Tensor whole = Tensor::zeros(DType::F64, {1}), first = Tensor::zeros(DType::F64, {1});
  const Tensor second = Tensor::zeros(DType::F64, {1});
  add_sum_of_squares(ctx, x, whole);
  add_sum_of_squares(ctx, x.view().slice(0, 0, 1024), first);
  add_sum_of_squares(ctx, x.view().slice(0, 1024, 2048), second);
  CHECK(whole.values<double>()[0] == first.values<double>()[0] + second.values<double>()[0]);
}

TEST_CASE("fill_normal is a function of the index alone", "[elementwise]") {
  ExecContext ctx = ExecContext::cpu();
  const RandomStream stream{.seed = 3, .stream = 9};
  const Tensor whole(DType::F32, {10, 10}), part(DType::F32, {3, 10});
  fill_normal(ctx, whole, stream, 2.0, 0.5);
  fill_normal(ctx, part, stream, 2.0, 0.5, 40);
  CHECK(bitwise_equal(part, whole.view().slice(0, 4, 7)));
  CHECK(whole.values<float>()[17] == static_cast<float>(2.0 + 0.5 * stream.normal(17)));

  const Tensor many(DType::F64, {20000});
  fill_normal(ctx, many, stream, 1.0, 2.0);
  double sum = 0, square = 0;
  for (const double value : many.values<double>()) {
    sum += value;
    square += value * value;
  }
  CHECK(std::abs(sum / 20000 - 1.0) < 0.06);                // 4 standard errors
  CHECK(std::abs(square / 20000 - (1.0 + 4.0)) < 0.2);      // mean^2 + variance
}

TEST_CASE("elementwise operations name the argument that is wrong", "[elementwise]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor x(DType::F32, {2, 3}), other(DType::F32, {3, 2}), ids(DType::I32, {2, 3});
  check_shape_error("destination", [&] { copy(ctx, x, other); });
  check_shape_error("destination", [&] { copy(ctx, x, ids); });
  check_shape_error("y", [&] { add(ctx, x, other); });
  check_shape_error("x", [&] { add(ctx, ids, x); });
  check_shape_error("x", [&] { scale(ctx, ids, 2); });
  check_shape_error("x", [&] { fill(ctx, x.view().slice(1, 0, 2), 2); });
  check_shape_error("x", [&] { fill(ctx, {}, 2); });
  check_shape_error("sum_of_squares", [&] { add_sum_of_squares(ctx, x, x); });
}

TEST_CASE("elementwise operations plan without data", "[elementwise]") {
  ExecContext ctx = ExecContext::plan(Device{});
  const TensorView x = planned(DType::F32, {1000, 1000});
  fill(ctx, x, 1);
  copy(ctx, x, planned(DType::BF16, {1000, 1000}));
  add(ctx, x, x);
  scale(ctx, x, 2);
  add_sum_of_squares(ctx, x, planned(DType::F64, {1}));
  fill_normal(ctx, x, {}, 0, 1);
  CHECK(ctx.scratch().high_water_bytes() == 0);
}
