// Weight gradients on the CPU: dW += dY^T X, summed over tokens in double. Products of two floats are exact in double, so
// the sum over tokens, micro-batches and ranks carries double rounding only, and rounding to float at the update gives the
// same weights whatever the order was: training does not depend on the layout.
#pragma once

#include <cstdint>

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul::cpu {

// Tokens that are converted and multiplied together.
inline constexpr int64_t kGradientRows = 256;

// Scratch for one product: absent when x already is double.
[[nodiscard]] TensorView take_gradient_scratch(Arena& arena, DType compute, int64_t rows, int64_t out, int64_t in);

template <class T>
struct GradientProduct {
  int64_t rows = 0, out = 0, in = 0;
  const T* dy = nullptr;  // [rows, out], rows ldy apart
  int64_t ldy = 0;
  const T* x = nullptr;  // [rows, in], rows ldx apart
  int64_t ldx = 0;
  double* dweight = nullptr;  // [out, in], contiguous, accumulated
  TensorView scratch;         // from take_gradient_scratch with at least these sizes
};
template <class T>
void gradient_product(const GradientProduct<T>& op);

}  // namespace longhaul::cpu
