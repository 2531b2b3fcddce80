// Moves token rows into expert order and back. A slot is one (token, choice) pair, numbered token * top_k + choice;
// slots sorted by expert (stable, so by token within an expert) give each slot its row.
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct PlanPermutation {
  TensorView experts;  // i32 [slots] or [tokens, top_k]
  int64_t num_experts = 0;
  TensorView row_of_slot;  // i64 [slots]
  TensorView offsets;      // i64 [num_experts + 1]: rows of expert e are [offsets[e], offsets[e+1])
};
void plan_permutation(ExecContext& ctx, const PlanPermutation& op);

// y[row_of_slot[s]] = x[s / top_k]
struct PermuteForward {
  TensorView x;            // [tokens, dim]
  TensorView row_of_slot;  // i64 [tokens * top_k]
  int64_t top_k = 1;
  TensorView y;  // [tokens * top_k, dim]
};
void permute_forward(ExecContext& ctx, const PermuteForward& op);

// dx[t] = sum_choice dy[row_of_slot[t * top_k + choice]], in the order of choices
struct PermuteBackward {
  TensorView dy;           // [tokens * top_k, dim]
  TensorView row_of_slot;  // i64 [tokens * top_k]
  int64_t top_k = 1;
  TensorView dx;  // [tokens, dim], overwritten
};
void permute_backward(ExecContext& ctx, const PermuteBackward& op);

// y[t] = sum_choice weights[t, choice] * x[row_of_slot[t * top_k + choice]], in the order of choices
struct CombineForward {
  TensorView x;            // [tokens * top_k, dim], expert outputs
  TensorView row_of_slot;  // i64 [tokens * top_k]
  TensorView weights;      // [tokens, top_k], accurate type
  TensorView y;            // [tokens, dim]
};
void combine_forward(ExecContext& ctx, const CombineForward& op);

struct CombineBackward {
  TensorView dy;           // [tokens, dim]
  TensorView x;            // [tokens * top_k, dim]
  TensorView row_of_slot;  // i64 [tokens * top_k]
  TensorView weights;      // [tokens, top_k]
  TensorView dx;           // [tokens * top_k, dim], overwritten: weights * dy
  TensorView dweights;     // [tokens, top_k], accurate type, overwritten: <dy, x>
};
void combine_backward(ExecContext& ctx, const CombineBackward& op);

}  // namespace longhaul
