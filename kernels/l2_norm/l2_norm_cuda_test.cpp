// The GPU against the CPU; the gradient comes in the compute type and in f32.
#include "kernels/gpu_test.h"
#include "kernels/l2_norm/l2_norm.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("l2_norm on the GPU equals the CPU", "[l2_norm][cuda]") {
  for (const DType dtype : kGpuTypes) {
    for (const auto& [tokens, heads, dim] : {std::tuple<int64_t, int64_t, int64_t>{500, 8, 128}, {65, 3, 20}, {9, 2, 600}, {0, 2, 16}}) {
      Parity p(fmt::format("l2_norm {}x{}", tokens * heads, dim), dtype);
      const Shape cube{tokens, heads, dim};
      Twin &x = p.random("x", cube, 2, 0.3), &dy = p.random("dy", cube), &dy_exact = p.random_accurate("dy_exact", cube);
      Twin &y = p.output("y", cube), &inv_norm = p.output_accurate("inv_norm", {tokens, heads}), &dx = p.output("dx", cube);
      Twin& dx_exact = p.output("dx_exact", cube);
      // Backward gets an input of its own, so that only its own error is measured.
      Twin& saved = p.random("saved", cube, 0.1);
      p.run([&](ExecContext& ctx, const Parity::Side& on) {
        l2_norm_forward(ctx, {.x = on(x), .y = on(y), .inv_norm = on(inv_norm)});
        l2_norm_backward(ctx, {.dy = on(dy), .y = on(saved), .inv_norm = on(inv_norm), .dx = on(dx)});
        l2_norm_backward(ctx, {.dy = on(dy_exact), .y = on(saved), .inv_norm = on(inv_norm), .dx = on(dx_exact)});
      });
      p.check(y, kFloatBound, kRoundedBound);
      p.check(inv_norm, kFloatBound, kFloatBound);
      p.check(dx, kFloatBound, kRoundedBound);
      p.check(dx_exact, kFloatBound, kRoundedBound);
    }
  }
}
