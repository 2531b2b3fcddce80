// The GPU against the CPU: the plan is the same stable sort, rows are moved and combined.
#include "kernels/gpu_test.h"
#include "kernels/permute/permute.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("permute on the GPU equals the CPU", "[permute][cuda]") {
  for (const DType dtype : kGpuTypes) {
    for (const auto& [tokens, experts, top_k, dim] :
         {std::tuple<int64_t, int64_t, int64_t, int64_t>{2500, 64, 4, 512}, {300, 896, 16, 24}, {77, 3, 2, 13}, {10, 2000, 1, 600}, {0, 4, 2, 8}}) {
      Parity p(fmt::format("permute {}/{}", top_k, experts), dtype);
      const int64_t slots = tokens * top_k;
      std::vector<int32_t> routes;
      const RandomStream random{.seed = 8, .stream = 9};
      for (int64_t i = 0; i < slots; ++i) {  // expert 1 gets a third of all
        routes.push_back(i % 3 == 0 && experts > 1 ? 1 : static_cast<int32_t>(random.below(static_cast<uint64_t>(i), static_cast<uint64_t>(experts))));
      }
      Twin& route = p.integers("routes", routes, {tokens, top_k});
      Twin &rows = p.integers("row_of_slot", std::vector<int64_t>(static_cast<size_t>(slots), -1), {slots});
      Twin& offsets = p.integers("offsets", std::vector<int64_t>(static_cast<size_t>(experts + 1), -1), {experts + 1});
      Twin &x = p.random("x", {tokens, dim}), &sorted = p.output("sorted", {slots, dim}), &out = p.random("expert_out", {slots, dim});
      Twin &weights = p.random_accurate("weights", {tokens, top_k}), &y = p.output("combined", {tokens, dim}), &dy = p.random("dy", {tokens, dim});
      Twin &dout = p.output("dexpert_out", {slots, dim}), &dweights = p.output_accurate("dweights", {tokens, top_k}), &dx = p.output("dx", {tokens, dim});
      p.run([&](ExecContext& ctx, const Parity::Side& on) {
        plan_permutation(ctx, {.experts = on(route), .num_experts = experts, .row_of_slot = on(rows), .offsets = on(offsets)});
        permute_forward(ctx, {.x = on(x), .row_of_slot = on(rows), .top_k = top_k, .y = on(sorted)});
        permute_backward(ctx, {.dy = on(out), .row_of_slot = on(rows), .top_k = top_k, .dx = on(dx)});
        combine_forward(ctx, {.x = on(out), .row_of_slot = on(rows), .weights = on(weights), .y = on(y)});
        combine_backward(ctx, {.dy = on(dy), .x = on(out), .row_of_slot = on(rows), .weights = on(weights), .dx = on(dout), .dweights = on(dweights)});
      });
      p.check_equal(rows);
      p.check_equal(offsets);
      p.check_equal(sorted);
      p.check(dx, kFloatBound, kRoundedBound);
      p.check(y, kFloatBound, kRoundedBound);
      p.check(dout, kFloatBound, kRoundedBound);
      p.check(dweights, kFloatBound, kFloatBound);
    }
  }
}
