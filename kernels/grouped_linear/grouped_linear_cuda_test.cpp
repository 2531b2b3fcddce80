// The GPU against the CPU: experts without rows, rows of nobody, ragged tiles, slices of columns, odd sizes.
#include "kernels/gpu_test.h"
#include "kernels/grouped_linear/grouped_linear.h"

using namespace longhaul;
using namespace longhaul::testing;

namespace {

// Offsets of experts with very different numbers of rows, some none.
std::vector<int64_t> offsets_of(int64_t experts, int64_t scale) {
  std::vector<int64_t> offsets{0};
  for (int64_t e = 0; e < experts; ++e) {
    offsets.push_back(offsets.back() + (e % 4 == 2 ? 0 : (e * 37 + 11) % (scale + 1)));
  }
  return offsets;
}

}  // namespace

TEST_CASE("grouped_linear on the GPU equals the CPU", "[grouped_linear][cuda]") {
  for (const DType dtype : kGpuTypes) {
    for (const auto& [experts, scale, in, out] :
         {std::tuple<int64_t, int64_t, int64_t, int64_t>{40, 200, 128, 192}, {5, 300, 200, 72}, {3, 40, 13, 7}, {70, 3, 64, 32}, {4, 0, 8, 8}}) {
      Parity p(fmt::format("grouped_linear {}x{}x{}", experts, in, out), dtype);
      const std::vector<int64_t> bounds = offsets_of(experts, scale);
      const int64_t rows = bounds.back() + 5;  // five belong to nobody
      const int64_t left = in % 8 == 0 ? 8 : 1;
      Twin& offsets = p.integers("offsets", bounds, {experts + 1});
      Twin &x = p.random("x", {rows, in + 16}), &weight = p.random("weight", {experts, out, in}, 0.3), &dy = p.random("dy", {rows, out});
      Twin &y = p.output("y", {rows, out + 8}), &dx = p.output("dx", {rows, in}), &dx_added = p.random("dx_added", {rows, in});
      Twin& dweight = p.gradient("dweight", {experts, out, in});
      Parity::narrow_to(x, left, in);
      Parity::narrow_to(y, 0, out);
      p.run([&](ExecContext& ctx, const Parity::Side& on) {
        grouped_linear_forward(ctx, {.x = on(x), .weight = on(weight), .offsets = on(offsets), .y = on(y)});
        grouped_linear_backward(ctx, {.dy = on(dy), .x = on(x), .weight = on(weight), .offsets = on(offsets), .dx = on(dx), .dweight = on(dweight)});
        grouped_linear_backward(ctx, {.dy = on(dy), .x = on(x), .weight = on(weight), .offsets = on(offsets), .dx = on(dx_added), .accumulate_dx = Accumulate::Add});
      });
      p.check(y, kFloatBound, kRoundedBound);
      p.check(dx, kFloatBound, kRoundedBound);
      p.check(dx_added, kFloatBound, kRoundedBound);
      p.check(dweight, kFloatBound, kFloatBound);
    }
  }
}
