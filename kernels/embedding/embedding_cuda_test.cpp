// The GPU against the CPU: repeated ids, a vocabulary of more than two digits, odd widths.
#include "kernels/embedding/embedding.h"
#include "kernels/gpu_test.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("embedding on the GPU equals the CPU", "[embedding][cuda]") {
  for (const DType dtype : kGpuTypes) {
    for (const auto& [tokens, vocab, hidden] : {std::tuple<int64_t, int64_t, int64_t>{5000, 70000, 32}, {700, 257, 13}, {3, 1, 8}, {0, 9, 8}}) {
      std::vector<int32_t> ids;
      const RandomStream random{.seed = 5, .stream = 6};
      for (int64_t t = 0; t < tokens; ++t) {  // half of the tokens are among the first ten ids
        const auto range = static_cast<uint64_t>(t % 2 == 0 ? std::min<int64_t>(vocab, 10) : vocab);
        ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(t), range)));
      }
      Parity p(fmt::format("embedding {}x{}", tokens, vocab), dtype);
      Twin &id = p.integers("ids", ids, {tokens}), &table = p.random("table", {vocab, hidden}), &y = p.output("y", {tokens, hidden});
      Twin &dy = p.random("dy", {tokens, hidden}), &dtable = p.gradient("dtable", {vocab, hidden});
      p.run([&](ExecContext& ctx, const Parity::Side& on) {
        embedding_forward(ctx, {.ids = on(id), .table = on(table), .y = on(y)});
        embedding_backward(ctx, {.dy = on(dy), .ids = on(id), .dtable = on(dtable)});
      });
      p.check_equal(y);
      p.check(dtable, kFloatBound, kFloatBound);
    }
  }
}
