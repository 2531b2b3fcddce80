// The GPU against the CPU: the same integers.
#include "kernels/gpu_test.h"
#include "kernels/route_histogram/route_histogram.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("route_histogram on the GPU equals the CPU", "[route_histogram][cuda]") {
  constexpr int64_t kTokens = 3000, kExperts = 37, kTopK = 3, kBins = 1000;
  Parity p("route_histogram", DType::F32);
  std::vector<int32_t> routes;
  for (int64_t i = 0; i < kTokens * kTopK; ++i) {
    routes.push_back(static_cast<int32_t>(i * i % kExperts));
  }
  Twin &scores = p.random("scores", {kTokens, kExperts}, 0.4, 0.5), &cutoff = p.random("cutoff", {kTokens}, 0.4, 0.7);
  Twin &experts = p.integers("experts", routes, {kTokens, kTopK});
  Twin &counts = p.integers("counts", std::vector<int64_t>(kExperts * kBins, 5), {kExperts, kBins}), &load = p.integers("load", std::vector<int64_t>(kExperts, 3), {kExperts});
  p.run([&](ExecContext& ctx, const Parity::Side& on) {
    route_histogram(ctx, {.scores = on(scores), .cutoff = on(cutoff), .experts = on(experts), .low = -1.1, .high = 1.07, .counts = on(counts), .load = on(load)});
  });
  p.check_equal(counts);
  p.check_equal(load);
}
