// The GPU against the CPU: short and long rows, odd widths, slices of columns, many rows for the two-stage sum.
#include "kernels/gpu_test.h"
#include "kernels/rms_norm/rms_norm.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("rms_norm on the GPU equals the CPU", "[rms_norm][cuda]") {
  for (const DType dtype : kGpuTypes) {
    for (const auto& [rows, dim] : {std::pair<int64_t, int64_t>{1000, 512}, {333, 1536}, {37, 67}, {3000, 24}, {5, 7168}, {1, 3}, {0, 8}}) {
      Parity p(fmt::format("rms_norm {}x{}", rows, dim), dtype);
      Twin &x = p.random("x", {rows, dim + 16}, 2, 0.5), &scale = p.random("scale", {dim}, 0.3, 1), &dy = p.random("dy", {rows, dim});
      Twin &y = p.output("y", {rows, dim}), &inv_rms = p.output_accurate("inv_rms", {rows}), &dx = p.output("dx", {rows, dim + 8});
      Twin& dscale = p.gradient("dscale", {dim});
      Parity::narrow_to(x, dim % 8 == 0 ? 8 : 3, dim);
      Parity::narrow_to(dx, 8, dim);
      p.run([&](ExecContext& ctx, const Parity::Side& on) {
        rms_norm_forward(ctx, {.x = on(x), .scale = on(scale), .y = on(y), .inv_rms = on(inv_rms)});
        rms_norm_backward(ctx, {.dy = on(dy), .x = on(x), .scale = on(scale), .inv_rms = on(inv_rms), .dx = on(dx), .dscale = on(dscale)});
      });
      p.check(y, kFloatBound, kRoundedBound);
      p.check(inv_rms, kFloatBound, kFloatBound);
      p.check(dx, kFloatBound, kRoundedBound);
      p.check(dscale, kFloatBound, kFloatBound);
    }
  }
}
