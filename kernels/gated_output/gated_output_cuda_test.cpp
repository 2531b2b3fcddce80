// The GPU against the CPU, with a gate and without.
#include "kernels/gated_output/gated_output.h"
#include "kernels/gpu_test.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("gated_output on the GPU equals the CPU", "[gated_output][cuda]") {
  for (const DType dtype : kGpuTypes) {
    const Shape shape{123, 77};
    Parity p("gated_output", dtype);
    Twin &o = p.random_accurate("o", shape), &gate = p.random("gate", shape, 3), &dy = p.random("dy", shape), &y = p.output("y", shape);
    Twin &plain = p.output("y_plain", shape), &d_o = p.output_accurate("d_o", shape), &dgate = p.output("dgate", shape);
    Twin& d_plain = p.output_accurate("d_o_plain", shape);
    p.run([&](ExecContext& ctx, const Parity::Side& on) {
      gated_output_forward(ctx, {.o = on(o), .gate = on(gate), .y = on(y)});
      gated_output_forward(ctx, {.o = on(o), .y = on(plain)});
      gated_output_backward(ctx, {.dy = on(dy), .o = on(o), .gate = on(gate), .d_o = on(d_o), .dgate = on(dgate)});
      gated_output_backward(ctx, {.dy = on(dy), .o = on(o), .d_o = on(d_plain)});
    });
    p.check(y, kFloatBound, kRoundedBound);
    p.check(plain, 0, kRoundedBound);
    p.check(d_o, kFloatBound, kFloatBound);
    p.check(dgate, kFloatBound, kRoundedBound);
    p.check_equal(d_plain);
  }
}
