// The GPU against the CPU, with logits far out on both sides.
#include "kernels/gpu_test.h"
#include "kernels/sigmoid/sigmoid.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("sigmoid on the GPU equals the CPU", "[sigmoid][cuda]") {
  for (const DType dtype : kGpuTypes) {
    for (const int64_t n : {10007, 64, 0}) {
      Parity p(fmt::format("sigmoid {}", n), dtype);
      Twin &x = p.random("x", {n}, 20), &y = p.output_accurate("y", {n}), &dy = p.random_accurate("dy", {n}), &dx = p.output("dx", {n});
      p.run([&](ExecContext& ctx, const Parity::Side& on) {
        sigmoid_forward(ctx, {.x = on(x), .y = on(y)});
        sigmoid_backward(ctx, {.dy = on(dy), .y = on(y), .dx = on(dx)});
      });
      p.check(y, kFloatBound, kFloatBound);
      p.check(dx, kFloatBound, kRoundedBound);
    }
  }
}
