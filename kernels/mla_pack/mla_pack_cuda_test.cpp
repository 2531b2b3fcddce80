// The GPU against the CPU: copies are equal, the shared part is a sum over heads.
#include "kernels/gpu_test.h"
#include "kernels/mla_pack/mla_pack.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("mla_pack on the GPU equals the CPU", "[mla_pack][cuda]") {
  for (const DType dtype : kGpuTypes) {
    for (const auto& [tokens, heads, nope, shared] : {std::tuple<int64_t, int64_t, int64_t, int64_t>{211, 8, 128, 64}, {17, 3, 5, 7}, {0, 2, 8, 8}}) {
      Parity p(fmt::format("mla_pack {}x{}", tokens, heads), dtype);
      Twin &k_heads = p.random("k_heads", {tokens, heads, 2 * nope}), &k_shared = p.random("k_shared", {tokens, shared + 8});
      Twin &k = p.output("k", {tokens, heads, nope + shared}), &dk = p.random("dk", {tokens, heads, nope + shared});
      Twin &dk_heads = p.output("dk_heads", {tokens, heads, 2 * nope}), &dk_shared = p.output("dk_shared", {tokens, shared});
      Parity::narrow_to(k_heads, 0, nope);
      Parity::narrow_to(dk_heads, 0, nope);
      Parity::narrow_to(k_shared, 8, shared);
      p.run([&](ExecContext& ctx, const Parity::Side& on) {
        mla_pack_forward(ctx, {.k_heads = on(k_heads), .k_shared = on(k_shared), .k = on(k)});
        mla_pack_backward(ctx, {.dk = on(dk), .dk_heads = on(dk_heads), .dk_shared = on(dk_shared)});
      });
      p.check_equal(k);
      p.check_equal(dk_heads);
      p.check(dk_shared, kFloatBound, kRoundedBound);
    }
  }
}
