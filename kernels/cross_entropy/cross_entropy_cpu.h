// The CPU version of cross_entropy.h; arguments are checked by the caller.
#pragma once

#include "kernels/cross_entropy/cross_entropy.h"

namespace longhaul::cpu {

// `logits`: [min(chunk_tokens, tokens), vocab], scratch.
void linear_cross_entropy(const LinearCrossEntropy& op, const TensorView& logits);

}  // namespace longhaul::cpu
