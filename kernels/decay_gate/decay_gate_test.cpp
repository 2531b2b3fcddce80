// Published gate values, the bound over a tile, finite differences of every gradient, float against double, errors.
#include "kernels/decay_gate/decay_gate.h"

#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "kernels/op_test.h"

using namespace longhaul;
using namespace longhaul::testing;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

constexpr int64_t kTokens = 6, kHeads = 3, kDim = 5;

struct Case {
  DecayKind kind;
  Tensor z, a_log, dt_bias, dg, g, dz, da_log, ddt_bias;

  Case(DType dtype, DecayKind decay_kind)
      : kind(decay_kind),
        z(converted(random_tensor(DType::F64, {kTokens, kHeads, kDim}, "z", 2), dtype)),
        a_log(converted(random_tensor(DType::F64, {kHeads}, "a_log", 0.5), dtype)),
        dt_bias(converted(random_tensor(DType::F64, {kHeads * kDim}, "dt_bias", 1, -1), dtype)),
        dg(converted(random_tensor(DType::F64, {kTokens, kHeads, kDim}, "dg"), dtype)),
        g(poisoned(dtype, {kTokens, kHeads, kDim})),
        dz(poisoned(dtype, {kTokens, kHeads, kDim})),
        da_log(Tensor::zeros(dtype, {kHeads})),
        ddt_bias(Tensor::zeros(dtype, {kHeads * kDim})) {}

  void forward(ExecContext& ctx) const {
    decay_gate_forward(ctx, {.z = z, .a_log = a_log, .dt_bias = dt_bias, .kind = kind, .lower_bound = -4, .g = g});
  }
  void backward(ExecContext& ctx) const {
    decay_gate_backward(ctx, {.dg = dg, .z = z, .a_log = a_log, .dt_bias = dt_bias, .kind = kind, .lower_bound = -4,
                              .dz = dz, .da_log = da_log, .ddt_bias = ddt_bias});
  }
};

// g of one channel with a_log = 0 and no bias.
double gate(ExecContext& ctx, DecayKind kind, double z) {
  const Tensor g = poisoned(DType::F64, {1, 1, 1}), zero = Tensor::zeros(DType::F64, {1});
  decay_gate_forward(ctx, {.z = Tensor::from<double>({z}, {1, 1, 1}), .a_log = zero, .dt_bias = zero, .kind = kind, .g = g});
  return g.values<double>()[0];
}

}  // namespace

TEST_CASE("decay gates at known points", "[decay_gate]") {
  ExecContext ctx = ExecContext::cpu();
  CHECK_THAT(gate(ctx, DecayKind::Bounded, -1), WithinAbs(-1.344707, 5e-7));
  CHECK(gate(ctx, DecayKind::Bounded, 0) == -2.5);
  CHECK_THAT(gate(ctx, DecayKind::Bounded, 1), WithinAbs(-3.655293, 5e-7));
  CHECK_THAT(gate(ctx, DecayKind::Bounded, 20), WithinAbs(-5 + 1.0306e-8, 1e-11));
  CHECK_THAT(gate(ctx, DecayKind::Softplus, 0), WithinAbs(-0.693147, 5e-7));
  CHECK_THAT(gate(ctx, DecayKind::Softplus, 1), WithinAbs(-1.313262, 5e-7));
}

TEST_CASE("a_log belongs to the head and dt_bias to the channel", "[decay_gate]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor z = Tensor::zeros(DType::F64, {1, 2, 2}), g = poisoned(DType::F64, {1, 2, 2});
  const Tensor a_log = Tensor::from<double>({0, std::log(2.0)}, {2});
  const Tensor dt_bias = Tensor::from<double>({0, 1, 2, 3}, {4});
  decay_gate_forward(ctx, {.z = z, .a_log = a_log, .dt_bias = dt_bias, .g = g});
  const std::vector<double> logits{0, 1, 4, 6};
  for (size_t i = 0; i < 4; ++i) {
    CHECK_THAT(g.values<double>()[i], WithinRel(-5 / (1 + std::exp(-logits[i])), 1e-14));
  }
}

TEST_CASE("the bounded gate never decays a 16-token tile by more than e^-80, in float too", "[decay_gate]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor z = Tensor::from<float>({1e30f, 100.0f, 17.0f, -1e30f}, {4, 1, 1});
  const Tensor zero = Tensor::zeros(DType::F32, {1}), g = poisoned(DType::F32, {4, 1, 1});
  decay_gate_forward(ctx, {.z = z, .a_log = zero, .dt_bias = zero, .g = g});
  for (const float value : g.values<float>()) {
    CHECK(value >= -5.0f);
    CHECK(value <= 0.0f);
  }
}

TEST_CASE("decay_gate_backward agrees with finite differences", "[decay_gate][grad]") {
  ExecContext ctx = ExecContext::cpu();
  for (const DecayKind kind : {DecayKind::Bounded, DecayKind::Softplus}) {
    const Case c(DType::F64, kind);
    c.backward(ctx);
    const auto loss = [&] {
      c.forward(ctx);
      return dot(c.dg, c.g);
    };
    CHECK(gradient_error(c.z, c.dz, loss, {.max_elements = 90}) < 1e-7);
    CHECK(gradient_error(c.a_log, c.da_log, loss) < 1e-7);
    CHECK(gradient_error(c.dt_bias, c.ddt_bias, loss) < 1e-7);
  }
}

TEST_CASE("the bounded gate keeps a gradient where sigmoid rounds to 1", "[decay_gate]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor z = Tensor::from<float>({25.0f}, {1, 1, 1}), dg = Tensor::from<float>({1.0f}, {1, 1, 1});
  const Tensor zero = Tensor::zeros(DType::F32, {1}), dz = poisoned(DType::F32, {1, 1, 1});
  const Tensor da_log = Tensor::zeros(DType::F32, {1}), ddt_bias = Tensor::zeros(DType::F32, {1});
  decay_gate_backward(ctx, {.dg = dg, .z = z, .a_log = zero, .dt_bias = zero, .dz = dz, .da_log = da_log, .ddt_bias = ddt_bias});
  CHECK_THAT(dz.values<float>()[0], WithinRel(static_cast<float>(-5 * std::exp(-25.0)), 1e-5f));
}

TEST_CASE("decay_gate accumulates parameter gradients and overwrites dz", "[decay_gate]") {
  ExecContext ctx = ExecContext::cpu();
  const Case once(DType::F64, DecayKind::Bounded), twice(DType::F64, DecayKind::Bounded);
  once.backward(ctx);
  twice.backward(ctx);
  twice.backward(ctx);
  CHECK(bitwise_equal(once.dz, twice.dz));
  for (size_t i = 0; i < kHeads; ++i) {
    CHECK_THAT(twice.da_log.values<double>()[i], WithinRel(2 * once.da_log.values<double>()[i], 1e-13));
  }
  for (size_t i = 0; i < kHeads * kDim; ++i) {
    CHECK_THAT(twice.ddt_bias.values<double>()[i], WithinRel(2 * once.ddt_bias.values<double>()[i], 1e-13));
  }
}

TEST_CASE("decay_gate in float agrees with double", "[decay_gate]") {
  ExecContext ctx = ExecContext::cpu();
  for (const DecayKind kind : {DecayKind::Bounded, DecayKind::Softplus}) {
    const Case wide(DType::F64, kind), narrow_case(DType::F32, kind);
    for (const Case* c : {&wide, &narrow_case}) {
      c->forward(ctx);
      c->backward(ctx);
    }
    CHECK(difference(narrow_case.g, wide.g).within(1e-6));
    CHECK(difference(narrow_case.dz, wide.dz).within(1e-5));
    CHECK(difference(narrow_case.da_log, wide.da_log).within(1e-5));
    CHECK(difference(narrow_case.ddt_bias, wide.ddt_bias).within(1e-5));
  }
}

TEST_CASE("decay_gate: no tokens, errors, planning", "[decay_gate]") {
  ExecContext ctx = ExecContext::cpu();
  const Case c(DType::F32, DecayKind::Bounded);
  const Tensor empty(DType::F32, {0, kHeads, kDim}), wrong(DType::F32, {2});
  decay_gate_forward(ctx, {.z = empty, .a_log = c.a_log, .dt_bias = c.dt_bias, .g = empty});
  decay_gate_backward(ctx, {.dg = empty, .z = empty, .a_log = c.a_log, .dt_bias = c.dt_bias, .dz = empty, .da_log = c.da_log, .ddt_bias = c.ddt_bias});
  CHECK(to_doubles(c.da_log) == std::vector<double>(kHeads, 0.0));
  check_shape_error("a_log", [&] { decay_gate_forward(ctx, {.z = c.z, .a_log = wrong, .dt_bias = c.dt_bias, .g = c.g}); });
  check_shape_error("dt_bias", [&] { decay_gate_forward(ctx, {.z = c.z, .a_log = c.a_log, .dt_bias = wrong, .g = c.g}); });
  check_shape_error("g", [&] { decay_gate_forward(ctx, {.z = c.z, .a_log = c.a_log, .dt_bias = c.dt_bias, .g = wrong}); });
  check_shape_error("dz", [&] {
    decay_gate_backward(ctx, {.dg = c.dg, .z = c.z, .a_log = c.a_log, .dt_bias = c.dt_bias, .dz = wrong, .da_log = c.da_log, .ddt_bias = c.ddt_bias});
  });
  for (const double bound : {-5.1, 0.0, 1.0}) {
    CHECK_THROWS_AS(decay_gate_forward(ctx, {.z = c.z, .a_log = c.a_log, .dt_bias = c.dt_bias, .lower_bound = bound, .g = c.g}), UsageError);
  }
  ExecContext plan = ExecContext::plan(Device{}), run = ExecContext::cpu();
  const TensorView z = planned(DType::F32, {kTokens, kHeads, kDim}), heads = planned(DType::F32, {kHeads});
  const TensorView channels = planned(DType::F32, {kHeads * kDim});
  decay_gate_forward(plan, {.z = z, .a_log = heads, .dt_bias = channels, .g = z});
  decay_gate_backward(plan, {.dg = z, .z = z, .a_log = heads, .dt_bias = channels, .dz = z, .da_log = heads, .ddt_bias = channels});
  c.backward(run);
  CHECK(plan.scratch().high_water_bytes() == run.scratch().high_water_bytes());
  CHECK(plan.scratch().used_bytes() == 0);
}
