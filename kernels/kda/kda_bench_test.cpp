// Times of Kimi Delta Attention on one core, printed on demand: kernel_kda_test "[.bench]". No asserts.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <ctime>

#include "kernels/kda/kda_problem.h"

namespace longhaul {
namespace {

using namespace longhaul::testing;

// Processor time, so that other work on the machine does not count.
template <class Fn>
double best_seconds(Fn&& fn) {
  double best = 1e9;
  for (int repeat = 0; repeat < 7; ++repeat) {
    const std::clock_t start = std::clock();
    fn();
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return best;
}

// Operations of the chunkwise form by the count of Kimi Linear, eq. 13, with chunk 64; backward is taken as twice that.
double forward_flops(const KdaSizes& s) {
  const auto d = static_cast<double>(s.key_dim);
  const auto c = static_cast<double>(kKdaChunk);
  return static_cast<double>(s.tokens() * s.heads) * (6 * d * d + 3 * c * d + c * c);
}

void measure(int64_t width, int64_t heads, KdaTiles tiles) {
  const KdaProblem p = KdaProblem({.lengths = {2048}, .heads = heads, .key_dim = width, .value_dim = width}, tiles).in(DType::F32);
  const Shape states{kda_state_rows(2048, 1, width), heads, width, width};
  const Tensor o = poisoned(DType::F32, p.v.view().shape());
  const Tensor chunk_states = poisoned(DType::F32, states);
  const Tensor dq = poisoned(DType::F32, p.q.view().shape()), dk = poisoned(DType::F32, p.q.view().shape());
  const Tensor dg = poisoned(DType::F32, p.q.view().shape()), dv = poisoned(DType::F32, p.v.view().shape());
  const Tensor dbeta = poisoned(DType::F32, p.beta.view().shape());
  ExecContext ctx = ExecContext::cpu();
  const double forward = best_seconds([&] {
    kda_forward(ctx, {.q = p.q, .k = p.k, .v = p.v, .g = p.g, .beta = p.beta, .cu_seqlens = p.cu_seqlens, .tiles = tiles,
                      .o = o, .chunk_states = chunk_states});
  });
  const double backward = best_seconds([&] {
    kda_backward(ctx, {.d_o = p.v, .q = p.q, .k = p.k, .v = p.v, .g = p.g, .beta = p.beta, .cu_seqlens = p.cu_seqlens,
                       .tiles = tiles, .chunk_states = chunk_states, .dq = dq, .dk = dk, .dv = dv, .dg = dg, .dbeta = dbeta});
  });
  const double flops = forward_flops(p.sizes);
  fmt::print("kda {} T=2048 H={} K=V={}: forward {:.2f} ms, {:.1f} GFLOP/s; backward {:.2f} ms, {:.1f} GFLOP/s\n",
             tiles == KdaTiles::Dense ? "dense   " : "pairwise", heads, width, forward * 1e3, flops / forward * 1e-9,
             backward * 1e3, 2 * flops / backward * 1e-9);
}

TEST_CASE("kda timing", "[.bench]") {
  for (const KdaTiles tiles : {KdaTiles::Dense, KdaTiles::Pairwise}) {
    measure(32, 4, tiles);
    measure(64, 4, tiles);
    measure(128, 4, tiles);
  }
}

}  // namespace
}  // namespace longhaul
