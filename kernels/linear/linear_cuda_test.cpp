// The GPU against the CPU: slices of columns, accumulation, odd sizes, f32 results and gradients beside bf16 weights.
#include "kernels/gpu_test.h"
#include "kernels/linear/linear.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("linear on the GPU equals the CPU", "[linear][cuda]") {
  for (const DType dtype : kGpuTypes) {
    for (const auto& [tokens, in, out] : {std::tuple<int64_t, int64_t, int64_t>{513, 256, 384}, {100, 72, 64}, {33, 7, 5}, {1, 1, 1}, {0, 8, 16}}) {
      Parity p(fmt::format("linear {}x{}x{}", tokens, in, out), dtype);
      const int64_t left = in % 8 == 0 ? 8 : 3;
      Twin &x = p.random("x", {tokens, in + 16}), &weight = p.random("weight", {out, in}, 0.3), &dy = p.random("dy", {tokens, out});
      Twin &y = p.output("y", {tokens, out + 8}), &exact = p.output_accurate("y_exact", {tokens, out}), &added = p.random("y_added", {tokens, out});
      Twin &dx = p.output("dx", {tokens, in}), &dx_added = p.random("dx_added", {tokens, in}), &dweight = p.gradient("dweight", {out, in});
      Twin &dy_exact = p.random_accurate("dy_exact", {tokens, out}), &dx_of_exact = p.output("dx_of_exact", {tokens, in});
      Parity::narrow_to(x, left, in);
      Parity::narrow_to(y, 8, out);
      p.run([&](ExecContext& ctx, const Parity::Side& on) {
        linear_forward(ctx, {.x = on(x), .weight = on(weight), .y = on(y)});
        linear_forward(ctx, {.x = on(x), .weight = on(weight), .y = on(exact)});
        linear_forward(ctx, {.x = on(x), .weight = on(weight), .y = on(added), .accumulate = Accumulate::Add});
        linear_backward(ctx, {.dy = on(dy), .x = on(x), .weight = on(weight), .dx = on(dx), .dweight = on(dweight)});
        linear_backward(ctx, {.dy = on(dy), .x = on(x), .weight = on(weight), .dx = on(dx_added), .accumulate_dx = Accumulate::Add});
        linear_backward(ctx, {.dy = on(dy_exact), .x = on(x), .weight = on(weight), .dx = on(dx_of_exact)});
      });
      p.check(y, kFloatBound, kRoundedBound);
      p.check(exact, kFloatBound, kFloatBound);
      p.check(added, kFloatBound, kRoundedBound);
      p.check(dx, kFloatBound, kRoundedBound);
      p.check(dx_added, kFloatBound, kRoundedBound);
      p.check(dx_of_exact, kFloatBound, 2 * kRoundedBound);
      p.check(dweight, kFloatBound, kFloatBound);
    }
  }
}
