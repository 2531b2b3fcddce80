// Closed forms, the bound of SiTU-GLU, its limit, finite differences, strides, float against double, errors, planning.
#include "kernels/gated_activation/gated_activation.h"

#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "kernels/op_test.h"

using namespace longhaul;
using namespace longhaul::testing;
using Catch::Matchers::WithinRel;

namespace {

constexpr Activation kSituGlu{.kind = ActivationKind::SituGlu, .beta_gate = 4, .beta_up = 25};
constexpr Activation kSwiGlu{.kind = ActivationKind::SwiGlu};

double at(ExecContext& ctx, Activation activation, double g, double u) {
  const Tensor y = poisoned(DType::F64, {1, 1});
  gated_activation_forward(ctx, {.gate = Tensor::from<double>({g}, {1, 1}), .up = Tensor::from<double>({u}, {1, 1}),
                                 .activation = activation, .y = y});
  return y.values<double>()[0];
}

}  // namespace

TEST_CASE("gated activations at points worked by hand", "[gated_activation]") {
  ExecContext ctx = ExecContext::cpu();
  const double sigmoid2 = 1 / (1 + std::exp(-2.0));
  CHECK_THAT(at(ctx, kSwiGlu, 2, -3), WithinRel(2 * sigmoid2 * -3, 1e-14));
  CHECK_THAT(at(ctx, kSituGlu, 2, -3), WithinRel(4 * std::tanh(0.5) * sigmoid2 * 25 * std::tanh(-0.12), 1e-14));
  CHECK(at(ctx, kSituGlu, 0, 5) == 0);
}

TEST_CASE("SiTU-GLU is bounded by beta1 beta2, and its limit is SwiGLU", "[gated_activation]") {
  ExecContext ctx = ExecContext::cpu();
  CHECK_THAT(at(ctx, kSituGlu, 1e6, 1e6), WithinRel(100.0, 1e-12));
  CHECK_THAT(at(ctx, kSituGlu, 1e6, -1e6), WithinRel(-100.0, 1e-12));
  CHECK(at(ctx, kSituGlu, -1e6, 1e6) == 0);
  const Activation wide{.kind = ActivationKind::SituGlu, .beta_gate = 1e6, .beta_up = 1e6};
  CHECK_THAT(at(ctx, wide, 1.3, 0.7), WithinRel(at(ctx, kSwiGlu, 1.3, 0.7), 1e-10));
}

TEST_CASE("gated_activation_backward agrees with finite differences", "[gated_activation][grad]") {
  ExecContext ctx = ExecContext::cpu();
  const Shape shape{4, 11};
  const Tensor gate = random_tensor(DType::F64, shape, "gate", 3), up = random_tensor(DType::F64, shape, "up", 20);
  const Tensor dy = random_tensor(DType::F64, shape, "dy"), y = poisoned(DType::F64, shape);
  for (const Activation& activation : {kSituGlu, kSwiGlu}) {
    const Tensor dgate = poisoned(DType::F64, shape), dup = poisoned(DType::F64, shape);
    gated_activation_backward(ctx, {.dy = dy, .gate = gate, .up = up, .activation = activation, .dgate = dgate, .dup = dup});
    const auto loss = [&] {
      gated_activation_forward(ctx, {.gate = gate, .up = up, .activation = activation, .y = y});
      return dot(dy, y);
    };
    CHECK(gradient_error(gate, dgate, loss) < 1e-7);
    CHECK(gradient_error(up, dup, loss) < 1e-7);
  }
}

TEST_CASE("gated activations in float agree with double, also in slices and in place", "[gated_activation]") {
  ExecContext ctx = ExecContext::cpu();
  const Shape shape{5, 37};
  const Tensor gate = random_tensor(DType::F64, shape, "gate", 3), up = random_tensor(DType::F64, shape, "up", 20);
  const Tensor dy = random_tensor(DType::F64, shape, "dy");
  const Tensor gate32 = converted(gate, DType::F32), up32 = converted(up, DType::F32), dy32 = converted(dy, DType::F32);
  for (const Activation& activation : {kSituGlu, kSwiGlu}) {
    const Tensor y = poisoned(DType::F64, shape), dgate = poisoned(DType::F64, shape), dup = poisoned(DType::F64, shape);
    gated_activation_forward(ctx, {.gate = gate, .up = up, .activation = activation, .y = y});
    gated_activation_backward(ctx, {.dy = dy, .gate = gate, .up = up, .activation = activation, .dgate = dgate, .dup = dup});

    // Gate and up are the halves of one [rows, 2 dim] product, and the gradients overwrite them.
    const StridedMatrix g(gate32, 0, 37), u(up32, 37, 0);
    const Tensor y32 = poisoned(DType::F32, shape);
    gated_activation_forward(ctx, {.gate = g.view, .up = u.view, .activation = activation, .y = y32});
    gated_activation_backward(ctx, {.dy = dy32, .gate = g.view, .up = u.view, .activation = activation, .dgate = g.view, .dup = u.view});
    CHECK(difference(y32, y).within(1e-6));
    CHECK(difference(g.view, dgate).within(1e-5));
    CHECK(difference(u.view, dup).within(1e-5));
    CHECK(g.surroundings_untouched());
  }
}

TEST_CASE("gated activations: empty rows, errors, planning", "[gated_activation]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor empty(DType::F32, {0, 4}), x = Tensor::zeros(DType::F32, {2, 4}), wrong(DType::F32, {2, 5});
  gated_activation_forward(ctx, {.gate = empty, .up = empty, .y = empty});
  gated_activation_backward(ctx, {.dy = empty, .gate = empty, .up = empty, .dgate = empty, .dup = empty});
  check_shape_error("up", [&] { gated_activation_forward(ctx, {.gate = x, .up = wrong, .y = x}); });
  check_shape_error("y", [&] { gated_activation_forward(ctx, {.gate = x, .up = x, .y = wrong}); });
  check_shape_error("dy", [&] { gated_activation_backward(ctx, {.dy = wrong, .gate = x, .up = x, .dgate = x, .dup = x}); });
  check_shape_error("dup", [&] { gated_activation_backward(ctx, {.dy = x, .gate = x, .up = x, .dgate = x}); });
  CHECK_THROWS_AS(gated_activation_forward(ctx, {.gate = x, .up = x, .activation = {.beta_gate = 0}, .y = x}), UsageError);
  ExecContext plan = ExecContext::plan(Device{});
  const TensorView p = planned(DType::F32, {2, 4});
  gated_activation_forward(plan, {.gate = p, .up = p, .y = p});
  gated_activation_backward(plan, {.dy = p, .gate = p, .up = p, .dgate = p, .dup = p});
}
