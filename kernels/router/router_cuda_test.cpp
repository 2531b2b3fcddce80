// The GPU against the CPU: routes are the same, ties go to the lower index, all experts at once, forced routes.
#include "kernels/gpu_test.h"
#include "kernels/router/router.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("router on the GPU equals the CPU", "[router][cuda]") {
  for (const auto& [tokens, experts, top_k] : {std::tuple<int64_t, int64_t, int64_t>{2000, 64, 4}, {300, 896, 16}, {50, 5, 5}, {0, 8, 2}}) {
    Parity p(fmt::format("router {}/{}", top_k, experts), DType::F32);
    Twin &logits = p.random("logits", {tokens, experts}), &bias = p.random("bias", {experts}, 0.1), &scores = p.output("scores", {tokens, experts});
    std::vector<int32_t> nothing(static_cast<size_t>(tokens * top_k), -7), forced;
    for (int64_t i = 0; i < tokens * top_k; ++i) {
      forced.push_back(static_cast<int32_t>((i / top_k + i % top_k) % experts));
    }
    Twin &routes = p.integers("experts", nothing, {tokens, top_k}), &weights = p.output("weights", {tokens, top_k}), &cutoff = p.output("cutoff", {tokens});
    Twin &force = p.integers("forced", forced, {tokens, top_k}), &forced_routes = p.integers("forced_routes", nothing, {tokens, top_k});
    Twin &forced_weights = p.output("forced_weights", {tokens, top_k}), &dweights = p.random("dweights", {tokens, top_k});
    Twin& dlogits = p.output("dlogits", {tokens, experts});
    p.run([&](ExecContext& ctx, const Parity::Side& on) {
      RouterForward op{.logits = on(logits), .bias = on(bias), .top_k = top_k, .scaling = 2.5, .scores = on(scores), .experts = on(routes),
                       .weights = on(weights), .cutoff = on(cutoff)};
      router_forward(ctx, op);
      router_backward(ctx, {.dweights = on(dweights), .scores = on(scores), .experts = on(routes), .weights = on(weights), .scaling = 2.5, .dlogits = on(dlogits)});
      op.forced_experts = on(force);
      op.experts = on(forced_routes);
      op.weights = on(forced_weights);
      router_forward(ctx, op);
    });
    p.check(scores, kFloatBound, 0);
    p.check_equal(routes);
    p.check(weights, kFloatBound, 0);
    p.check(cutoff, kFloatBound, 0);
    p.check(dlogits, kFloatBound, 0);
    p.check_equal(forced_routes);
    p.check(forced_weights, kFloatBound, 0);
  }
}

TEST_CASE("router on the GPU gives ties to the lower index", "[router][cuda]") {
  Parity p("router ties", DType::F32);
  Twin &logits = p.random("logits", {2, 40}, 0, 0.5), &bias = p.random("bias", {40}, 0), &scores = p.output("scores", {2, 40});
  Twin &routes = p.integers("experts", std::vector<int32_t>(6, -7), {2, 3}), &weights = p.output("weights", {2, 3}), &cutoff = p.output("cutoff", {2});
  p.run([&](ExecContext& ctx, const Parity::Side& on) {
    router_forward(ctx, {.logits = on(logits), .bias = on(bias), .top_k = 3, .scores = on(scores), .experts = on(routes), .weights = on(weights), .cutoff = on(cutoff)});
  });
  p.check_equal(routes);
  CHECK(to_doubles(copy_to(routes.gpu, Device{})) == std::vector<double>{0, 1, 2, 0, 1, 2});
}
