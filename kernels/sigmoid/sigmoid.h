// Elementwise y = sigmoid(x) into the accurate type, for the write strength beta of Kimi Delta Attention.
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct SigmoidForward {
  TensorView x;  // any shape
  TensorView y;  // same shape, accurate type
};
void sigmoid_forward(ExecContext& ctx, const SigmoidForward& op);

struct SigmoidBackward {
  TensorView dy;  // accurate type
  TensorView y;   // the output, accurate type
  TensorView dx;  // overwritten
};
void sigmoid_backward(ExecContext& ctx, const SigmoidBackward& op);

}  // namespace longhaul
