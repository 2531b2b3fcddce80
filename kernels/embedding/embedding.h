// Token embedding: y[t] = table[ids[t]]; backward adds rows in token order.
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct EmbeddingForward {
  TensorView ids;    // i32 [tokens], each in [0, vocab)
  TensorView table;  // [vocab, hidden]
  TensorView y;      // [tokens, hidden]
};
// Errors: DataError when an id is outside the table.
void embedding_forward(ExecContext& ctx, const EmbeddingForward& op);

struct EmbeddingBackward {
  TensorView dy;      // [tokens, hidden], compute or accurate type
  TensorView ids;     // i32 [tokens]
  TensorView dtable;  // [vocab, hidden], gradient_type, accumulated
};
void embedding_backward(ExecContext& ctx, const EmbeddingBackward& op);

}  // namespace longhaul
