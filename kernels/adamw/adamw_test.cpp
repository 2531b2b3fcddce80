// The first step's closed form, several steps against the formula in double, decay on its own, errors, planning.
#include "kernels/adamw/adamw.h"

#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "kernels/op_test.h"

using namespace longhaul;
using namespace longhaul::testing;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

TEST_CASE("the first step moves by the learning rate against the gradient's sign", "[adamw]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor p = Tensor::from<double>({1, 1, 1}, {3}), g = Tensor::from<double>({1e-3, -50, 0}, {3});
  const Tensor m = Tensor::zeros(DType::F64, {3}), v = Tensor::zeros(DType::F64, {3});
  adamw(ctx, {.parameter = p, .gradient = g, .m = m, .v = v, .learning_rate = 0.01, .eps = 1e-12, .step = 1});
  CHECK_THAT(p.values<double>()[0], WithinRel(0.99, 1e-9));
  CHECK_THAT(p.values<double>()[1], WithinRel(1.01, 1e-9));
  CHECK(p.values<double>()[2] == 1);
  CHECK_THAT(m.values<double>()[1], WithinRel(-5.0, 1e-14));
  CHECK_THAT(v.values<double>()[1], WithinRel(125.0, 1e-12));
}

TEST_CASE("several steps follow the published formula", "[adamw]") {
  ExecContext ctx = ExecContext::cpu();
  const double lr = 0.02, beta1 = 0.8, beta2 = 0.99, eps = 1e-3, wd = 0.3, clip = 0.25;
  for (const DType dtype : {DType::F64, DType::F32}) {
    const Tensor p = converted(random_tensor(DType::F64, {17}, "p"), dtype);
    const Tensor m = Tensor::zeros(dtype, {17}), v = Tensor::zeros(dtype, {17});
    std::vector<double> wanted = to_doubles(p), first(17, 0.0), second(17, 0.0);
    for (int64_t step = 1; step <= 6; ++step) {
      const Tensor g = converted(random_tensor(DType::F64, {17}, fmt::format("g{}", step)), dtype);
      const std::vector<double> gradient = to_doubles(g);
      for (size_t i = 0; i < 17; ++i) {
        const double scaled = clip * gradient[i];
        first[i] = beta1 * first[i] + (1 - beta1) * scaled;
        second[i] = beta2 * second[i] + (1 - beta2) * scaled * scaled;
        const double m_hat = first[i] / (1 - std::pow(beta1, step)), v_hat = second[i] / (1 - std::pow(beta2, step));
        wanted[i] = wanted[i] - lr * wd * wanted[i] - lr * m_hat / (std::sqrt(v_hat) + eps);
      }
      adamw(ctx, {.parameter = p, .gradient = g, .m = m, .v = v, .grad_scale = clip, .learning_rate = lr, .beta1 = beta1,
                  .beta2 = beta2, .eps = eps, .weight_decay = wd, .step = step});
    }
    CHECK(difference(p, Tensor::from(wanted, {17})).within(dtype == DType::F64 ? 1e-13 : 1e-6));
    CHECK(difference(v, Tensor::from(second, {17})).within(dtype == DType::F64 ? 1e-13 : 1e-6));
  }
}

TEST_CASE("weight decay shrinks the parameter and does not enter the moments", "[adamw]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor p = Tensor::from<double>({2, -3}, {2}), g = Tensor::zeros(DType::F64, {2});
  const Tensor m = Tensor::zeros(DType::F64, {2}), v = Tensor::zeros(DType::F64, {2});
  adamw(ctx, {.parameter = p, .gradient = g, .m = m, .v = v, .learning_rate = 0.1, .weight_decay = 0.5, .step = 3});
  CHECK_THAT(p.values<double>()[0], WithinRel(1.9, 1e-14));
  CHECK_THAT(p.values<double>()[1], WithinRel(-2.85, 1e-14));
  CHECK(to_doubles(m) == std::vector<double>{0, 0});
  CHECK(to_doubles(v) == std::vector<double>{0, 0});
}

TEST_CASE("an update of a shard equals that part of the whole update, bitwise", "[adamw]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor whole = random_tensor(DType::F32, {37}, "p"), part = random_tensor(DType::F32, {37}, "p");
  const Tensor g = random_tensor(DType::F32, {37}, "g");
  const Tensor m1 = Tensor::zeros(DType::F32, {37}), v1 = Tensor::zeros(DType::F32, {37});
  const Tensor m2 = Tensor::zeros(DType::F32, {37}), v2 = Tensor::zeros(DType::F32, {37});
  adamw(ctx, {.parameter = whole, .gradient = g, .m = m1, .v = v1, .learning_rate = 0.1, .weight_decay = 0.1});
  const auto shard = [](const Tensor& t) { return t.view().slice(0, 5, 24); };
  adamw(ctx, {.parameter = shard(part), .gradient = shard(g), .m = shard(m2), .v = shard(v2), .learning_rate = 0.1, .weight_decay = 0.1});
  CHECK(bitwise_equal(shard(part), shard(whole)));
  CHECK(bitwise_equal(shard(v2), shard(v1)));
}

TEST_CASE("adamw: empty shard, errors, planning", "[adamw]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor none(DType::F32, {0}), x = Tensor::zeros(DType::F32, {4}), wrong(DType::F32, {5});
  adamw(ctx, {.parameter = none, .gradient = none, .m = none, .v = none});
  check_shape_error("gradient", [&] { adamw(ctx, {.parameter = x, .gradient = wrong, .m = x, .v = x}); });
  check_shape_error("m", [&] { adamw(ctx, {.parameter = x, .gradient = x, .m = wrong, .v = x}); });
  check_shape_error("v", [&] { adamw(ctx, {.parameter = x, .gradient = x, .m = x, .v = Tensor(DType::F64, {4})}); });
  check_shape_error("parameter", [&] { adamw(ctx, {.parameter = Tensor(DType::BF16, {4}), .gradient = x, .m = x, .v = x}); });
  CHECK_THROWS_AS(adamw(ctx, {.parameter = x, .gradient = x, .m = x, .v = x, .step = 0}), UsageError);
  CHECK_THROWS_AS(adamw(ctx, {.parameter = x, .gradient = x, .m = x, .v = x, .beta2 = 1}), UsageError);
  ExecContext plan = ExecContext::plan(Device{});
  const TensorView p = planned(DType::F32, {4});
  adamw(plan, {.parameter = p, .gradient = p, .m = p, .v = p});
}
