// The GPU against the CPU: one source and many, long rows and odd ones, gradients that already hold something.
#include "kernels/attn_res_mix/attn_res_mix.h"
#include "kernels/gpu_test.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("attn_res_mix on the GPU equals the CPU", "[attn_res_mix][cuda]") {
  for (const DType dtype : kGpuTypes) {
    for (const auto& [tokens, hidden, count] : {std::tuple<int64_t, int64_t, int>{300, 1024, 5}, {65, 520, 2}, {40, 1000, 8}, {20, 7168, 9}, {33, 50, 1}, {7, 24, 20}, {0, 16, 3}}) {
      Parity p(fmt::format("attn_res_mix {}x{}", hidden, count), dtype);
      const Shape shape{tokens, hidden};
      std::vector<Twin*> sources, dsources;
      for (int i = 0; i < count; ++i) {
        sources.push_back(&p.random(fmt::format("v{}", i), shape, 1 + 0.3 * i));
        dsources.push_back(&p.random_accurate(fmt::format("dv{}", i), shape, 0.1));
      }
      Twin &norm_scale = p.random("norm_scale", {hidden}, 0.3, 1), &query = p.random("query", {hidden}, 0.05), &y = p.output("y", shape);
      Twin &dy = p.random("dy", shape), &dnorm_scale = p.gradient("dnorm_scale", {hidden}), &dquery = p.gradient("dquery", {hidden});
      p.run([&](ExecContext& ctx, const Parity::Side& on) {
        std::vector<TensorView> v, dv;
        for (int i = 0; i < count; ++i) {
          v.push_back(on(*sources[static_cast<size_t>(i)]));
          dv.push_back(on(*dsources[static_cast<size_t>(i)]));
        }
        attn_res_mix_forward(ctx, {.sources = v, .norm_scale = on(norm_scale), .query = on(query), .y = on(y)});
        attn_res_mix_backward(ctx, {.dy = on(dy), .sources = v, .norm_scale = on(norm_scale), .query = on(query), .dsources = dv,
                                    .dnorm_scale = on(dnorm_scale), .dquery = on(dquery)});
      });
      p.check(y, kFloatBound, kRoundedBound);
      p.check(*dsources[0], kFloatBound, kFloatBound);
      p.check(*dsources.back(), kFloatBound, kFloatBound);
      p.check(dnorm_scale, kFloatBound, kFloatBound);
      p.check(dquery, kFloatBound, kFloatBound);
    }
  }
}
