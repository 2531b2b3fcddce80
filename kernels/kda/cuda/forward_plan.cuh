// The steps of a forward call with their parameters: tables, prepare, transfer (what each segment does to a state, and
// the states between segments), walk. Each enqueues kernels and returns a CUDA error code.
#pragma once

#include <algorithm>

#include "kernels/kda/cuda/kda_cuda.h"
#include "kernels/kda/cuda/launch.cuh"
#include "kernels/kda/cuda/prepare.cuh"
#include "kernels/kda/cuda/prepare_pairwise.cuh"
#include "kernels/kda/cuda/recurrence.cuh"
#include "kernels/kda/cuda/tables.cuh"
#include "kernels/kda/cuda/transfer.cuh"
#include "kernels/kda/cuda/workspace.h"

namespace longhaul::kda::cuda {

[[nodiscard]] inline InputParams input_params(const InputArrays& in, const Sizes& s) {
  return {.q = static_cast<const uint16_t*>(in.q),
          .k = static_cast<const uint16_t*>(in.k),
          .g = in.g,
          .beta = in.beta,
          .gate = static_cast<const uint16_t*>(in.gate),
          .beta_logits = static_cast<const uint16_t*>(in.beta_logits),
          .a_log = in.a_log,
          .dt_bias = in.dt_bias,
          .gate_bound = in.gate_bound,
          .q_stride = static_cast<int>(in.q_stride),
          .k_stride = static_cast<int>(in.k_stride),
          .g_stride = static_cast<int>(in.g_stride),
          .heads = static_cast<int>(s.heads),
          .scale = in.scale};
}

template <int D>
[[nodiscard]] int launch_prepare(int error, const PrepareParams& p, const Sizes& s, Gates gates, CUstream_st* stream) {
  constexpr int64_t blocks_each = D == 128 ? 2 : 3;
  const int64_t blocks = std::min(max_chunks(s) * s.heads, blocks_each * multiprocessors());
  if (gates == Gates::Unbounded) {
    return launch(error, prepare_pairwise_kernel<D>, blocks, TileThread<D>::kThreads, PairwiseTilesShared<D>::kBytes, stream, p);
  }
  void (*kernel)(PrepareParams) = p.in.gate != nullptr ? prepare_kernel<D, Inputs::Raw> : prepare_kernel<D, Inputs::Ready>;
  return launch(error, kernel, blocks, PrepareShared<D>::kThreads, PrepareShared<D>::kBytes, stream, p);
}

template <int D>
class ForwardPlan {
 public:
  explicit ForwardPlan(const ForwardArgs& args)
      : args_(args), rule_(segment_rule_of(args.sizes, args.segment_chunks)) {
    Cutter cutter(args.workspace);
    workspace_ = take_forward(cutter, args.sizes, rule_);
    if (args.saved != nullptr) {
      Cutter save_cutter(args.saved);
      saved_ = take_saved(save_cutter, args.sizes);
      if (args.sizes.saving == Saving::Images) {
        workspace_.images = saved_.images;
      }
    }
  }

  [[nodiscard]] bool has_segments() const { return kda::cuda::has_segments(args_.sizes, rule_); }
  [[nodiscard]] int tables(int error) const;
  [[nodiscard]] int prepare(int error) const;
  [[nodiscard]] int transfer(int error) const;
  [[nodiscard]] int walk(int error) const;

 private:
  static constexpr int kGroups = D / 64;

  [[nodiscard]] RecurrenceParams params() const;
  [[nodiscard]] int64_t segments() const { return max_segments(args_.sizes, rule_); }
  template <int kBlockGroups, Walk kWalk>
  [[nodiscard]] int walk_with(int error) const;

  ForwardArgs args_;
  SegmentRule rule_;
  ForwardWorkspace workspace_{};
  Saved saved_{};
};

template <int D>
int ForwardPlan<D>::tables(int error) const {
  const TablesParams p{.cu_seqlens = args_.in.cu_seqlens,
                       .documents = static_cast<int>(args_.sizes.documents),
                       .segments = rule_,
                       .tables = workspace_.tables};
  return launch(error, tables_kernel, 1, kTablesThreads, tables_shared_bytes(), args_.stream, p);
}

template <int D>
int ForwardPlan<D>::prepare(int error) const {
  const PrepareParams p{.in = input_params(args_.in, args_.sizes),
                        .tables = workspace_.tables,
                        .documents = static_cast<int>(args_.sizes.documents),
                        .images = workspace_.images};
  return launch_prepare<D>(error, p, args_.sizes, args_.in.gates, args_.stream);
}

template <int D>
RecurrenceParams ForwardPlan<D>::params() const {
  return {.tables = workspace_.tables,
          .documents = static_cast<int>(args_.sizes.documents),
          .heads = static_cast<int>(args_.sizes.heads),
          .images = workspace_.images,
          .v = static_cast<const uint16_t*>(args_.in.v),
          .v_stride = args_.in.v_stride,
          .o = static_cast<uint16_t*>(args_.o),
          .o_stride = args_.o_stride,
          .initial_state = args_.initial_state,
          .final_state = args_.final_state,
          .reach = workspace_.reach,
          .leaving_state = workspace_.leaving_state,
          .transfer_matrix = workspace_.transfer_matrix,
          .states = saved_.states,
          .residuals = saved_.residuals,
          .factors = saved_.factors};
}

template <int D>
template <int kBlockGroups, Walk kWalk>
int ForwardPlan<D>::walk_with(int error) const {
  using S = RecurrenceShared<D, kBlockGroups>;
  constexpr int parts = (kWalk == Walk::Transfer ? 2 * D : D) / S::kColumns;
  void (*kernel)(RecurrenceParams) = args_.products == Products::Warp
                                         ? recurrence_kernel<D, D, kBlockGroups, Engine::Warp, kWalk>
                                         : recurrence_kernel<D, D, kBlockGroups, Engine::Warpgroup, kWalk>;
  return launch(error, kernel, segments() * args_.sizes.heads * parts, S::kThreads, S::kBytes, args_.stream, params());
}

template <int D>
int ForwardPlan<D>::transfer(int error) const {
  const ReachParams reach{.tables = workspace_.tables,
                          .documents = static_cast<int>(args_.sizes.documents),
                          .heads = static_cast<int>(args_.sizes.heads),
                          .images = workspace_.images,
                          .reach = workspace_.reach};
  const int64_t items = segments() * args_.sizes.heads;
  error = launch(error, reach_kernel<D, Direction::Forward>, (items + kReachThreads / 32 - 1) / (kReachThreads / 32), kReachThreads, 0,
                 args_.stream, reach);
  error = walk_with<kGroups, Walk::Transfer>(error);
  const MergeParams p{.tables = workspace_.tables,
                      .documents = static_cast<int>(args_.sizes.documents),
                      .heads = static_cast<int>(args_.sizes.heads),
                      .reach = workspace_.reach,
                      .leaving_state = workspace_.leaving_state,
                      .transfer_matrix = workspace_.transfer_matrix};
  return launch(error, merge_kernel<D, D, Direction::Forward>, args_.sizes.documents * args_.sizes.heads * (D / kMergeRows), D,
                D * kMergeRows * static_cast<int>(sizeof(float)), args_.stream, p);
}

template <int D>
int ForwardPlan<D>::walk(int error) const {
  // Few blocks: halve the value columns of each, so that twice as many multiprocessors work.
  constexpr int64_t half_full = 66;
  const bool halved = D == 128 && segments() * args_.sizes.heads <= half_full;
  if (args_.saved != nullptr) {
    return halved ? walk_with<1, Walk::Training>(error) : walk_with<kGroups, Walk::Training>(error);
  }
  return halved ? walk_with<1, Walk::Output>(error) : walk_with<kGroups, Walk::Output>(error);
}

}  // namespace longhaul::kda::cuda
