// The CPU version of cross_entropy.h; arguments are checked by the caller.
#pragma once

#include "kernels/cross_entropy/cross_entropy.h"

namespace longhaul::cpu {

// `logits`: [min(chunk_tokens, tokens), vocab], scratch.
struct CrossEntropyScratch {
  TensorView logits;  // [chunk, vocab]
  TensorView panel;   // [max(hidden, vocab), kPanelColumns]
  TensorView wide;    // see take_gradient_scratch
};
void linear_cross_entropy(const LinearCrossEntropy& op, const CrossEntropyScratch& scratch);

}  // namespace longhaul::cpu
