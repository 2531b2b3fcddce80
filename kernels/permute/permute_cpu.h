// The CPU reference of permute.h, for arguments that were validated there.
#pragma once

#include "kernels/permute/permute.h"

namespace longhaul::cpu {

// `next_row` is scratch, i64 [num_experts].
void plan_permutation(const PlanPermutation& op, const TensorView& next_row);
void permute_forward(const PermuteForward& op);
void permute_backward(const PermuteBackward& op);
void combine_forward(const CombineForward& op);
void combine_backward(const CombineBackward& op);

}  // namespace longhaul::cpu
