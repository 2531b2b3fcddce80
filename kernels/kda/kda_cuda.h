// The general CUDA version of kda.h: any sizes that are multiples of 8 up to kKdaMaxDim, f32 or bf16, bounded or unbounded
// gates. Arguments are checked by the caller, but not the values of cu_seqlens. general/README.md has the design.
//
// Chunks are worked through in groups, so that scratch stays near kKdaScratchTarget however long the sequence is; results
// do not depend on the grouping, to the last bit.
#pragma once

#include "kernels/kda/kda.h"
#include "kernels/kda/kda_decode.h"

namespace longhaul::cuda {

inline constexpr int64_t kKdaDimStep = 8;
inline constexpr int64_t kKdaMaxDim = 256;
inline constexpr int64_t kKdaScratchTarget = int64_t{256} << 20;

struct KdaScratch {
  int64_t group_chunks = 0;  // chunks of all documents that are in scratch at a time
  TensorView first_chunks;   // i64 [documents + 1]: where the chunks of a document begin
  TensorView chunks;         // i64 [kda_max_chunks, 2]: first token and number of rows
  TensorView images;         // f32 [group_chunks, heads, image]: what the walks read of a chunk, see general/layout.cuh
  TensorView carry;          // f32 [2, heads, key_dim, value_dim]: the state between groups, double-buffered
  TensorView residuals;      // f32 [group_chunks, heads, 64, value_dim]; backward, as all that follow
  TensorView d_residuals;    // f32 [group_chunks, heads, 64, value_dim]
  TensorView d_states;       // f32 [group_chunks, heads, key_dim, value_dim]: gradients of the states leaving chunks
};
// From sizes alone.
[[nodiscard]] KdaScratch take_kda_scratch(Arena& arena, const KdaForward& op);
[[nodiscard]] KdaScratch take_kda_scratch(Arena& arena, const KdaBackward& op);

void kda_forward(ExecContext& ctx, const KdaForward& op, const KdaScratch& scratch);
void kda_backward(ExecContext& ctx, const KdaBackward& op, const KdaScratch& scratch);
void kda_decode(ExecContext& ctx, const KdaDecode& op);
// Fills zeros (of any type) with 0, and each matrix of identities, f32 [documents, heads, key_dim, key_dim], with the identity.
void make_kda_segment_inputs(ExecContext& ctx, const TensorView& zeros, const TensorView& identities);

}  // namespace longhaul::cuda
