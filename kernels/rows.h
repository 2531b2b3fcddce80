// The rows of a matrix on the CPU: a typed pointer and the distance between rows, for loops over strided views.
#pragma once

#include <cstdint>

#include "tensor/tensor_view.h"

namespace longhaul::cpu {

template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;  // elements from one row to the next

  [[nodiscard]] T* operator[](int64_t row) const noexcept { return data + row * stride; }
};

// The rows of a view of rank 2 whose innermost stride is 1.
template <class T>
[[nodiscard]] Rows<T> rows_of(const TensorView& view) {
  return {view.data<T>(), view.stride(0)};
}

}  // namespace longhaul::cpu
