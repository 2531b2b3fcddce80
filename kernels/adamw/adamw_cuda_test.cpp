// The GPU against the CPU over several steps.
#include "kernels/adamw/adamw.h"
#include "kernels/gpu_test.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("adamw on the GPU equals the CPU", "[adamw][cuda]") {
  for (const int64_t n : {10007, 64, 0}) {
    Parity p(fmt::format("adamw {}", n), DType::F32);
    Twin &parameter = p.random("parameter", {n}), &m = p.random("m", {n}, 0), &v = p.random("v", {n}, 0), &gradient = p.random("gradient", {n});
    p.run([&](ExecContext& ctx, const Parity::Side& on) {
      for (int64_t step = 1; step <= 4; ++step) {
        adamw(ctx, {.parameter = on(parameter), .gradient = on(gradient), .m = on(m), .v = on(v), .grad_scale = 0.3, .learning_rate = 0.02,
                    .weight_decay = 0.1, .step = step});
      }
    });
    p.check(parameter, kFloatBound, 0);
    p.check(m, kFloatBound, 0);
    p.check(v, kFloatBound, 0);
  }
}
