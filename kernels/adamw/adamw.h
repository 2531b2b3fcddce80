// One AdamW update with decoupled weight decay and bias correction (Loshchilov and Hutter, arXiv:1711.05101):
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   p = p - lr * weight_decay * p - lr * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps)
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct AdamW {
  TensorView parameter;  // accurate type (master weights), any shape
  TensorView gradient;   // gradient_type
  TensorView m, v;       // accurate type
  double grad_scale = 1;  // multiplies the gradient: the clipping factor
  double learning_rate = 0;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
  int64_t step = 1;  // counts from 1
};
void adamw(ExecContext& ctx, const AdamW& op);

}  // namespace longhaul
