// The head: logits = x W^T, softmax cross-entropy summed over valid targets. Works through chunks of tokens, so the
// logits of all tokens never exist at once. Forward and backward are one operation, because the gradient of the loss sum
// is known as soon as a chunk's logits are.
#pragma once

#include "base/ignored_target.h"
#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct LinearCrossEntropy {
  TensorView x;        // [tokens, hidden]
  TensorView weight;   // [vocab, hidden]
  TensorView targets;  // i32 [tokens]; kIgnoredTarget: no loss there
  double grad_scale = 0;   // 1 / valid tokens of the whole global batch: what dx and dweight are multiplied with
  int64_t chunk_tokens = 1024;
  TensorView loss_sum;  // f64 [1], accumulated: sum of -log p(target)
  TensorView dx;        // [tokens, hidden], overwritten; absent: loss only
  TensorView dweight;   // [vocab, hidden], gradient_type, accumulated; absent: loss only
};
// Errors: DataError when a target is neither kIgnoredTarget nor in [0, vocab).
void linear_cross_entropy(ExecContext& ctx, const LinearCrossEntropy& op);

}  // namespace longhaul
