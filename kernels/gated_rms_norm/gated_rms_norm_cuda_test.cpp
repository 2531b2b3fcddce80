// The GPU against the CPU: head dimensions of every kind, many rows for the two-stage sum.
#include "kernels/gated_rms_norm/gated_rms_norm.h"
#include "kernels/gpu_test.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("gated_rms_norm on the GPU equals the CPU", "[gated_rms_norm][cuda]") {
  for (const DType dtype : kGpuTypes) {
    for (const auto& [tokens, heads, dim] : {std::tuple<int64_t, int64_t, int64_t>{700, 8, 128}, {65, 3, 20}, {9, 2, 600}, {0, 2, 16}}) {
      Parity p(fmt::format("gated_rms_norm {}x{}", tokens * heads, dim), dtype);
      const Shape cube{tokens, heads, dim}, flat{tokens, heads * dim};
      Twin &o = p.random("o", cube, 2, 0.3), &scale = p.random_accurate("scale", {dim}, 0.3, 1), &gate = p.random("gate", flat), &dy = p.random("dy", flat);
      Twin &y = p.output("y", flat), &inv_rms = p.output_accurate("inv_rms", {tokens, heads}), &d_o = p.output("d_o", cube), &dgate = p.output("dgate", flat);
      Twin& dscale = p.gradient("dscale", {dim});
      p.run([&](ExecContext& ctx, const Parity::Side& on) {
        gated_rms_norm_forward(ctx, {.o = on(o), .scale = on(scale), .gate = on(gate), .y = on(y), .inv_rms = on(inv_rms)});
        gated_rms_norm_backward(ctx, {.dy = on(dy), .o = on(o), .scale = on(scale), .gate = on(gate), .inv_rms = on(inv_rms), .d_o = on(d_o),
                                      .dgate = on(dgate), .dscale = on(dscale)});
      });
      p.check(y, kFloatBound, kRoundedBound);
      p.check(d_o, kFloatBound, kRoundedBound);
      p.check(dgate, kFloatBound, kRoundedBound);
      p.check(dscale, kFloatBound, kFloatBound);
    }
  }
}
