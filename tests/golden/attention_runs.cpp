// Runs of the attention operations; see golden_runs.h.
#include <algorithm>
#include <cmath>

#include "kernels/attention/attention.h"
#include "kernels/kda/kda.h"
#include "tests/golden/golden_runs.h"
#include "tests/support/compare.h"

namespace longhaul::testing {
namespace {

KdaForward kda_arguments(GoldenCase& c, KdaTiles tiles) {
  return {.q = c["in.q"],
          .k = c["in.k"],
          .v = c["in.v"],
          .g = c["in.g"],
          .beta = c["in.beta"],
          .cu_seqlens = c.cu_seqlens(),
          .scale = 1 / std::sqrt(static_cast<double>(c["in.q"].size(2))),
          .tiles = tiles,
          .initial_state = c["in.initial_state"],
          .o = c.out("o"),
          .final_state = c.out("final_state"),
          .chunk_states = {}};
}

// The dense form of a tile is for decays of the bounded gate.
bool is_bounded(const std::vector<double>& g) { return *std::min_element(g.begin(), g.end()) >= -5; }

void run_chunkwise(ExecContext& ctx, GoldenCase& c, KdaTiles tiles) {
  const KdaForward forward = [&] {
    KdaForward op = kda_arguments(c, tiles);
    op.chunk_states = c.temporary({kda_max_chunks(op.q.size(0), op.cu_seqlens.size(0) - 1), op.q.size(1), op.q.size(2), op.v.size(2)});
    return op;
  }();
  kda_forward(ctx, forward);
  kda_backward(ctx, {.d_o = c["dy.o"], .q = forward.q, .k = forward.k, .v = forward.v, .g = forward.g, .beta = forward.beta,
                     .cu_seqlens = forward.cu_seqlens, .scale = forward.scale, .tiles = tiles, .chunk_states = forward.chunk_states,
                     .dfinal_state = c["dy.final_state"], .dq = c.grad("in.q"), .dk = c.grad("in.k"), .dv = c.grad("in.v"),
                     .dg = c.grad("in.g"), .dbeta = c.grad("in.beta"), .dinitial_state = c.grad("in.initial_state")});
}

void run_kda_pairwise(ExecContext& ctx, GoldenCase& c) { run_chunkwise(ctx, c, KdaTiles::Pairwise); }
void run_kda_dense(ExecContext& ctx, GoldenCase& c) {
  const bool legal = is_bounded(to_doubles(c["in.g"]));
  run_chunkwise(ctx, c, legal ? KdaTiles::Dense : KdaTiles::Pairwise);
}

void run_kda_recurrent(ExecContext& ctx, GoldenCase& c) {
  kda_recurrent_forward(ctx, kda_arguments(c, KdaTiles::Pairwise));
  c.leave_out("grad.");  // the definition is forward only
}

void run_attention(ExecContext& ctx, GoldenCase& c) {
  const TensorView q = c["in.q"], k = c["in.k"], v = c["in.v"];
  const TensorView o = c.out("o"), lse = c.out("lse"), bounds = c.cu_seqlens();
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(2)));
  attention_forward(ctx, {.q = q, .k = k, .v = v, .cu_seqlens = bounds, .scale = scale, .o = o, .lse = lse});
  attention_backward(ctx, {.d_o = c["dy.o"], .q = q, .k = k, .v = v, .o = o, .lse = lse, .cu_seqlens = bounds, .scale = scale,
                           .dq = c.grad("in.q"), .dk = c.grad("in.k"), .dv = c.grad("in.v")});
}

}  // namespace

GoldenRuns attention_runs() {
  return {{"kda", run_kda_dense}, {"kda", run_kda_pairwise}, {"kda", run_kda_recurrent}, {"mla_attention", run_attention}};
}

}  // namespace longhaul::testing
