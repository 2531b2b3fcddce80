// Inputs of measured operations, on the CPU.
#pragma once

#include <string_view>
#include <vector>

#include "base/philox.h"
#include "tensor/tensor.h"

namespace longhaul::bench {

// Uniform on (low, high), f32 or f64; `name` chooses the numbers.
[[nodiscard]] inline Tensor random_tensor(DType dtype, const Shape& shape, double low, double high, const char* name) {
  Tensor tensor(dtype, shape);
  const RandomStream stream{.seed = 1, .stream = stream_id(name)};
  dispatch_float(dtype, "random_tensor", [&](auto zero) {
    using T = decltype(zero);
    uint64_t index = 0;
    for (T& value : tensor.values<T>()) {
      value = static_cast<T>(low + (high - low) * stream.uniform(index++));
    }
  });
  return tensor;
}

// One document of all tokens: i64 [2].
[[nodiscard]] inline Tensor one_document(int64_t tokens) { return Tensor::from(std::vector<int64_t>{0, tokens}, {2}); }

// The bytes of all tensors together.
[[nodiscard]] inline double total_bytes(const std::vector<const Tensor*>& tensors) {
  double bytes = 0;
  for (const Tensor* tensor : tensors) {
    bytes += static_cast<double>(tensor->view().bytes());
  }
  return bytes;
}

}  // namespace longhaul::bench
