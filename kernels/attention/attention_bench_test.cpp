// Times of causal attention on one core, printed on demand: kernel_attention_test "[.bench]". No asserts.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <ctime>

#include "kernels/attention/attention_problem.h"

namespace longhaul {
namespace {

using namespace longhaul::testing;

// Processor time, so that other work on the machine does not count.
template <class Fn>
double best_seconds(Fn&& fn) {
  double best = 1e9;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const std::clock_t start = std::clock();
    fn();
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return best;
}

void measure(int64_t tokens, int64_t key_dim, int64_t value_dim) {
  const AttentionProblem p({.lengths = {tokens}, .heads = 2, .key_dim = key_dim, .value_dim = value_dim}, DType::F32);
  const AttentionResult r = run(p);
  const Tensor dq = poisoned(DType::F32, p.q.view().shape()), dk = poisoned(DType::F32, p.q.view().shape());
  const Tensor dv = poisoned(DType::F32, p.v.view().shape());
  ExecContext ctx = ExecContext::cpu();
  const double forward = best_seconds([&] {
    attention_forward(
        ctx, {.q = p.q, .k = p.k, .v = p.v, .cu_seqlens = p.cu_seqlens, .scale = p.scale, .o = r.o, .lse = r.lse});
  });
  const double backward = best_seconds([&] {
    attention_backward(ctx, {.d_o = p.v, .q = p.q, .k = p.k, .v = p.v, .o = r.o, .lse = r.lse, .cu_seqlens = p.cu_seqlens,
                             .scale = p.scale, .dq = dq, .dk = dk, .dv = dv});
  });
  // Multiply-adds below the diagonal: two products forward, five backward.
  const double pairs = 0.5 * static_cast<double>(tokens) * static_cast<double>(tokens) * 2;
  const double forward_flops = 2 * pairs * static_cast<double>(key_dim + value_dim);
  const double backward_flops = 2 * pairs * static_cast<double>(3 * key_dim + 2 * value_dim);
  fmt::print("attention T={} H=2 K={} V={}: forward {:.2f} ms, {:.1f} GFLOP/s; backward {:.2f} ms, {:.1f} GFLOP/s\n", tokens,
             key_dim, value_dim, forward * 1e3, forward_flops / forward * 1e-9, backward * 1e3,
             backward_flops / backward * 1e-9);
}

TEST_CASE("attention timing", "[.bench]") {
  measure(2048, 48, 32);
  measure(2048, 192, 128);
}

}  // namespace
}  // namespace longhaul
