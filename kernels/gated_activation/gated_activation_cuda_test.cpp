// The GPU against the CPU: both activations, gate and up as halves of one matrix, odd widths.
#include "kernels/gated_activation/gated_activation.h"
#include "kernels/gpu_test.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("gated_activation on the GPU equals the CPU", "[gated_activation][cuda]") {
  for (const DType dtype : kGpuTypes) {
    for (const ActivationKind kind : {ActivationKind::SituGlu, ActivationKind::SwiGlu}) {
      for (const auto& [rows, dim] : {std::pair<int64_t, int64_t>{300, 512}, {41, 13}, {0, 8}}) {
        Parity p(fmt::format("{} {}x{}", kind == ActivationKind::SituGlu ? "situ_glu" : "swi_glu", rows, dim), dtype);
        Twin &gate = p.random("gate", {rows, 2 * dim}, 4), &up = p.random("up", {rows, 2 * dim}, 10), &dy = p.random("dy", {rows, dim});
        Twin &y = p.output("y", {rows, dim}), &dgate = p.output("dgate", {rows, 2 * dim}), &dup = p.output("dup", {rows, 2 * dim});
        Parity::narrow_to(gate, 0, dim);
        Parity::narrow_to(up, dim, dim);
        Parity::narrow_to(dgate, 0, dim);
        Parity::narrow_to(dup, dim, dim);
        const Activation activation{.kind = kind};
        p.run([&](ExecContext& ctx, const Parity::Side& on) {
          gated_activation_forward(ctx, {.gate = on(gate), .up = on(up), .activation = activation, .y = on(y)});
          gated_activation_backward(ctx, {.dy = on(dy), .gate = on(gate), .up = on(up), .activation = activation, .dgate = on(dgate), .dup = on(dup)});
        });
        p.check(y, kFloatBound, kRoundedBound);
        p.check(dgate, kFloatBound, kRoundedBound);
        p.check(dup, kFloatBound, kRoundedBound);
      }
    }
  }
}
