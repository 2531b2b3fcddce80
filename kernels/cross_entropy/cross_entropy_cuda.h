// The CUDA version of cross_entropy.h; arguments are checked by the caller, but not the values of targets: one outside the
// vocabulary makes the loss NaN.
#pragma once

#include "kernels/cross_entropy/cross_entropy.h"

namespace longhaul::cuda {

struct CrossEntropyScratch {
  TensorView logits;        // f32 [chunk, vocab]
  TensorView dlogits;       // compute type [chunk, vocab]; the logits themselves when that is f32
  TensorView token_losses;  // f64 [tokens]
};
void linear_cross_entropy(ExecContext& ctx, const LinearCrossEntropy& op, const CrossEntropyScratch& scratch);

}  // namespace longhaul::cuda
