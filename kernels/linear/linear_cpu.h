// The CPU version of linear.h; arguments are checked by the caller.
#pragma once

#include "kernels/linear/linear.h"

namespace longhaul::cpu {

// Scratch of both directions: a packed panel of the weight, and the operands of the weight gradient in double.
struct LinearScratch {
  TensorView panel;  // [in or out, kPanelColumns]
  TensorView wide;   // see take_gradient_scratch
};
void linear_forward(const LinearForward& op, const LinearScratch& scratch);
void linear_backward(const LinearBackward& op, const LinearScratch& scratch);

}  // namespace longhaul::cpu
