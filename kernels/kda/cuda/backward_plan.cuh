// The steps of a backward call with their parameters: tables and prepare as in forward, transfer (gradients of states between
// segments), walk (gradients of states at every chunk), gradients (of the inputs), gate_sums (of the gate's parameters). Each enqueues kernels and returns a CUDA
// error code.
#pragma once

#include "kernels/kda/cuda/backward_walk.cuh"
#include "kernels/kda/cuda/forward_plan.cuh"
#include "kernels/kda/cuda/gate_sums.cuh"
#include "kernels/kda/cuda/gradients.cuh"
#include "kernels/kda/cuda/gradients_pairwise.cuh"

namespace longhaul::kda::cuda {

template <int D>
class BackwardPlan {
 public:
  explicit BackwardPlan(const BackwardArgs& args)
      : args_(args), rule_(segment_rule_of(args.sizes, args.segment_chunks)) {
    Cutter cutter(args.workspace);
    workspace_ = take_backward(cutter, args.sizes, rule_);
    // The arrays lie as forward laid them, and are only read.
    Cutter saved_cutter(const_cast<void*>(args.saved));
    saved_ = take_saved(saved_cutter, args.sizes);
    if (args.sizes.saving == Saving::Images) {
      workspace_.images = saved_.images;
    }
  }

  [[nodiscard]] bool has_segments() const { return kda::cuda::has_segments(args_.sizes, rule_); }
  [[nodiscard]] int tables(int error) const;
  [[nodiscard]] int prepare(int error) const;
  [[nodiscard]] int transfer(int error) const;
  [[nodiscard]] int walk(int error) const;
  [[nodiscard]] int gradients(int error) const;
  [[nodiscard]] int gate_sums(int error) const;

 private:
  static constexpr int kGroups = D / 64;

  [[nodiscard]] bool is_raw() const { return args_.in.gate != nullptr; }
  [[nodiscard]] int documents() const { return static_cast<int>(args_.sizes.documents); }
  [[nodiscard]] int heads() const { return static_cast<int>(args_.sizes.heads); }
  [[nodiscard]] int64_t segments() const { return max_segments(args_.sizes, rule_); }
  template <int kBlockGroups, BackwardWalk kWalk>
  [[nodiscard]] int walk_with(int error) const;

  BackwardArgs args_;
  SegmentRule rule_;
  BackwardWorkspace workspace_{};
  Saved saved_{};
};

template <int D>
int BackwardPlan<D>::tables(int error) const {
  const TablesParams p{.cu_seqlens = args_.in.cu_seqlens,
                       .documents = documents(),
                       .segments = rule_,
                       .tables = workspace_.tables};
  return launch(error, tables_kernel, 1, kTablesThreads, tables_shared_bytes(), args_.stream, p);
}

template <int D>
int BackwardPlan<D>::prepare(int error) const {
  if (args_.sizes.saving == Saving::Images) {
    return error;
  }
  const PrepareParams p{.in = input_params(args_.in, args_.sizes),
                        .tables = workspace_.tables,
                        .documents = documents(),
                        .images = workspace_.images};
  return launch_prepare<D>(error, p, args_.sizes, args_.in.gates, args_.stream);
}

template <int D>
template <int kBlockGroups, BackwardWalk kWalk>
int BackwardPlan<D>::walk_with(int error) const {
  using S = BackwardWalkShared<D, kBlockGroups>;
  constexpr int parts = (kWalk == BackwardWalk::Transfer ? 2 * D : D) / S::kColumns;
  const BackwardWalkParams p{.tables = workspace_.tables,
                             .documents = documents(),
                             .heads = heads(),
                             .images = workspace_.images,
                             .d_o = static_cast<const uint16_t*>(args_.d_o),
                             .d_o_stride = args_.d_o_stride,
                             .dfinal_state = args_.dfinal_state,
                             .dinitial_state = args_.dinitial_state,
                             .reach = workspace_.reach,
                             .entering_gradient = workspace_.entering_gradient,
                             .transfer_matrix = workspace_.transfer_matrix,
                             .state_gradients = workspace_.state_gradients,
                             .residual_gradients = workspace_.residual_gradients,
                             .gradient_factors = workspace_.gradient_factors};
  void (*kernel)(BackwardWalkParams) = args_.products == Products::Warp
                                           ? backward_walk_kernel<D, D, kBlockGroups, Engine::Warp, kWalk>
                                           : backward_walk_kernel<D, D, kBlockGroups, Engine::Warpgroup, kWalk>;
  return launch(error, kernel, segments() * args_.sizes.heads * parts, S::kThreads, S::kBytes, args_.stream, p);
}

template <int D>
int BackwardPlan<D>::transfer(int error) const {
  const ReachParams reach{.tables = workspace_.tables,
                          .documents = documents(),
                          .heads = heads(),
                          .images = workspace_.images,
                          .reach = workspace_.reach};
  const int64_t items = segments() * args_.sizes.heads;
  error = launch(error, reach_kernel<D, Direction::Backward>, (items + kReachThreads / 32 - 1) / (kReachThreads / 32),
                 kReachThreads, 0, args_.stream, reach);
  error = walk_with<kGroups, BackwardWalk::Transfer>(error);
  const MergeParams p{.tables = workspace_.tables,
                      .documents = documents(),
                      .heads = heads(),
                      .reach = workspace_.reach,
                      .leaving_state = workspace_.entering_gradient,
                      .transfer_matrix = workspace_.transfer_matrix};
  return launch(error, merge_kernel<D, D, Direction::Backward>, args_.sizes.documents * args_.sizes.heads * (D / kMergeRows), D,
                D * kMergeRows * static_cast<int>(sizeof(float)), args_.stream, p);
}

template <int D>
int BackwardPlan<D>::walk(int error) const {
  constexpr int64_t half_full = 66;
  const bool halved = D == 128 && segments() * args_.sizes.heads <= half_full;
  return halved ? walk_with<1, BackwardWalk::Gradient>(error) : walk_with<kGroups, BackwardWalk::Gradient>(error);
}

template <int D>
int BackwardPlan<D>::gradients(int error) const {
  using S = GradientShared<D>;
  const GradientParams p{.in = input_params(args_.in, args_.sizes),
                         .tables = workspace_.tables,
                         .documents = documents(),
                         .v = static_cast<const uint16_t*>(args_.in.v),
                         .v_stride = args_.in.v_stride,
                         .d_o = static_cast<const uint16_t*>(args_.d_o),
                         .d_o_stride = args_.d_o_stride,
                         .states = saved_.states,
                         .residuals = saved_.residuals,
                         .factors = saved_.factors,
                         .state_gradients = workspace_.state_gradients,
                         .residual_gradients = workspace_.residual_gradients,
                         .gradient_factors = workspace_.gradient_factors,
                         .dq = args_.dq,
                         .dk = args_.dk,
                         .dv = args_.dv,
                         .dg = args_.dg,
                         .dbeta = args_.dbeta,
                         .bias_gradients = workspace_.bias_gradients,
                         .slope_gradients = workspace_.slope_gradients};
  const int64_t blocks = std::min(max_chunks(args_.sizes) * args_.sizes.heads, (D == 128 ? 1 : 2) * multiprocessors());
  if (args_.in.gates == Gates::Unbounded) {
    return launch(error, gradients_pairwise_kernel<D>, blocks, S::kThreads, PairwiseShared<D>::kBytes, args_.stream, p);
  }
  void (*kernel)(GradientParams) = is_raw() ? gradients_kernel<D, Inputs::Raw> : gradients_kernel<D, Inputs::Ready>;
  return launch(error, kernel, blocks, S::kThreads, S::kBytes, args_.stream, p);
}

template <int D>
int BackwardPlan<D>::gate_sums(int error) const {
  if (!is_raw() || (args_.da_log == nullptr && args_.ddt_bias == nullptr)) {
    return error;
  }
  const GateSumParams p{.tables = workspace_.tables,
                        .documents = documents(),
                        .heads = heads(),
                        .bias_gradients = workspace_.bias_gradients,
                        .slope_gradients = workspace_.slope_gradients,
                        .da_log = args_.da_log,
                        .ddt_bias = args_.ddt_bias};
  return launch(error, gate_sums_kernel<D>, args_.sizes.heads * (D / 32), kGateSumThreads, gate_sums_shared_bytes(), args_.stream, p);
}

}  // namespace longhaul::kda::cuda
