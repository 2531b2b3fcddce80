// The GPU against the CPU: several chunks with a ragged last one, ignored targets, loss only, odd vocabularies.
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/gpu_test.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("linear_cross_entropy on the GPU equals the CPU", "[cross_entropy][cuda]") {
  for (const DType dtype : kGpuTypes) {
    for (const auto& [tokens, hidden, vocab] : {std::tuple<int64_t, int64_t, int64_t>{300, 64, 5000}, {70, 24, 257}, {0, 8, 16}}) {
      std::vector<int32_t> targets;
      const RandomStream random{.seed = 3, .stream = 4};
      for (int64_t t = 0; t < tokens; ++t) {
        targets.push_back(t % 7 == 3 ? kIgnoredTarget : static_cast<int32_t>(random.below(static_cast<uint64_t>(t), static_cast<uint64_t>(vocab))));
      }
      Parity p(fmt::format("cross_entropy {}x{}", tokens, vocab), dtype);
      Twin &x = p.random("x", {tokens, hidden}), &weight = p.random("weight", {vocab, hidden}, 0.3), &target = p.integers("targets", targets, {tokens});
      Twin &loss = p.integers("loss_sum", std::vector<double>{2}, {1}), &loss_only = p.integers("loss_only", std::vector<double>{0}, {1});
      Twin &dx = p.output("dx", {tokens, hidden}), &dweight = p.gradient("dweight", {vocab, hidden});
      p.run([&](ExecContext& ctx, const Parity::Side& on) {
        linear_cross_entropy(ctx, {.x = on(x), .weight = on(weight), .targets = on(target), .grad_scale = 1.0, .chunk_tokens = 128, .loss_sum = on(loss),
                                   .dx = on(dx), .dweight = on(dweight)});
        linear_cross_entropy(ctx, {.x = on(x), .weight = on(weight), .targets = on(target), .chunk_tokens = 64, .loss_sum = on(loss_only)});
      });
      p.check(loss, 1e-6, 1e-6);
      p.check(loss_only, 1e-6, 1e-6);
      p.check(dx, kFloatBound, 2 * kRoundedBound);       // of logits' gradients that were rounded to bf16
      p.check(dweight, kFloatBound, kRoundedBound);
    }
  }
}
