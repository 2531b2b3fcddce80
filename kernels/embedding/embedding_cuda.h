// The CUDA version of embedding.h; arguments are checked by the caller, but not the values of ids: an id outside the table
// makes its row NaN in forward, so that the loss shows it, and adds nothing in backward.
#pragma once

#include "kernels/embedding/embedding.h"

namespace longhaul::cuda {

// Tokens sorted by id, digit by digit.
struct EmbeddingScratch {
  TensorView keys, other_keys;    // i32 [tokens]
  TensorView order, other_order;  // i32 [tokens]
  TensorView places;              // i64 [tokens]
  TensorView offsets;             // i64 [kDigitBuckets + 1]
  TensorView counts;              // take_sort_counts(tokens, kDigitBuckets)
};
inline constexpr int64_t kDigitBits = 8, kDigitBuckets = 256;

void embedding_forward(ExecContext& ctx, const EmbeddingForward& op);
void embedding_backward(ExecContext& ctx, const EmbeddingBackward& op, const EmbeddingScratch& scratch);

}  // namespace longhaul::cuda
