// The GPU against the CPU: both forms, many tokens for the two-stage sums, odd widths.
#include "kernels/decay_gate/decay_gate.h"
#include "kernels/gpu_test.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("decay_gate on the GPU equals the CPU", "[decay_gate][cuda]") {
  for (const DType dtype : kGpuTypes) {
    for (const DecayKind kind : {DecayKind::Bounded, DecayKind::Softplus}) {
      for (const auto& [tokens, heads, dim] : {std::tuple<int64_t, int64_t, int64_t>{3000, 4, 64}, {29, 3, 11}, {0, 2, 8}}) {
        Parity p(fmt::format("decay_gate {}{}", kind == DecayKind::Bounded ? "b " : "s ", tokens), dtype);
        const Shape cube{tokens, heads, dim};
        Twin &z = p.random("z", cube, 2), &a_log = p.random_accurate("a_log", {heads}, 0.3), &dt_bias = p.random_accurate("dt_bias", {heads * dim});
        Twin &g = p.output_accurate("g", cube), &dg = p.random_accurate("dg", cube), &dz = p.output("dz", cube);
        Twin &da_log = p.gradient("da_log", {heads}), &ddt_bias = p.gradient("ddt_bias", {heads * dim});
        p.run([&](ExecContext& ctx, const Parity::Side& on) {
          decay_gate_forward(ctx, {.z = on(z), .a_log = on(a_log), .dt_bias = on(dt_bias), .kind = kind, .g = on(g)});
          decay_gate_backward(ctx, {.dg = on(dg), .z = on(z), .a_log = on(a_log), .dt_bias = on(dt_bias), .kind = kind, .dz = on(dz),
                                    .da_log = on(da_log), .ddt_bias = on(ddt_bias)});
        });
        p.check(g, kFloatBound, kFloatBound);
        p.check(dz, kFloatBound, kRoundedBound);
        p.check(da_log, kFloatBound, kFloatBound);
        p.check(ddt_bias, kFloatBound, kFloatBound);
      }
    }
  }
}
