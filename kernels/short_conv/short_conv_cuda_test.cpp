// The GPU against the CPU: widths of both register windows, documents shorter than the filter and across the shares of
// threads, empty documents, gradients in both types.
#include "kernels/gpu_test.h"
#include "kernels/short_conv/short_conv.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("short_conv on the GPU equals the CPU", "[short_conv][cuda]") {
  const std::vector<int64_t> many{0, 1, 3, 3, 40, 64, 65, 700, 2048, 3000}, one{0, 100}, none{0};
  for (const DType dtype : kGpuTypes) {
    for (const auto& [bounds, channels, width] : {std::tuple<std::vector<int64_t>, int64_t, int64_t>{many, 300, 4}, {one, 24, 1}, {many, 17, 7}, {none, 8, 4}}) {
      const int64_t tokens = bounds.back();
      Parity p(fmt::format("short_conv {}x{}", tokens, width), dtype);
      const Shape shape{tokens, channels};
      Twin &x = p.random("x", shape), &weight = p.random_accurate("weight", {channels, width}, 0.5);
      Twin& cu_seqlens = p.integers("cu_seqlens", bounds, {static_cast<int64_t>(bounds.size())});
      Twin &y = p.output("y", shape), &dy = p.random("dy", shape), &dy_exact = p.random_accurate("dy_exact", shape);
      Twin &dx = p.output("dx", shape), &dx_exact = p.output("dx_exact", shape), &dweight = p.gradient("dweight", {channels, width});
      p.run([&](ExecContext& ctx, const Parity::Side& on) {
        short_conv_forward(ctx, {.x = on(x), .weight = on(weight), .cu_seqlens = on(cu_seqlens), .y = on(y)});
        short_conv_backward(ctx, {.dy = on(dy), .x = on(x), .weight = on(weight), .cu_seqlens = on(cu_seqlens), .dx = on(dx), .dweight = on(dweight)});
        short_conv_backward(ctx, {.dy = on(dy_exact), .x = on(x), .weight = on(weight), .cu_seqlens = on(cu_seqlens), .dx = on(dx_exact), .dweight = on(dweight)});
      });
      p.check(y, kFloatBound, kRoundedBound);
      p.check(dx, kFloatBound, kRoundedBound);
      p.check(dx_exact, kFloatBound, kRoundedBound);
      p.check(dweight, kFloatBound, kFloatBound);
    }
  }
}
