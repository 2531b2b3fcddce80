// The CUDA version of permute.h; arguments are checked by the caller, but not the rows in row_of_slot.
#pragma once

#include "kernels/permute/permute.h"

namespace longhaul::cuda {

// `counts`: take_sort_counts(slots, num_experts); num_experts at most kMaxBuckets (gpu/counting_sort.h).
void plan_permutation(ExecContext& ctx, const PlanPermutation& op, const TensorView& counts);
void permute_forward(ExecContext& ctx, const PermuteForward& op);
void permute_backward(ExecContext& ctx, const PermuteBackward& op);
void combine_forward(ExecContext& ctx, const CombineForward& op);
void combine_backward(ExecContext& ctx, const CombineBackward& op);

}  // namespace longhaul::cuda
