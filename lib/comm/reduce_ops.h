// What reductions do to two numbers, and the dispatch over the types that can be reduced.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "tensor/tensor_view.h"

namespace longhaul::detail {

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};

// std::max drops a NaN, depending on the order; a norm that is not finite must be seen on all ranks.
struct MaxOrNan {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return std::isnan(a) || a > b ? a : b;
    } else {
      return std::max(a, b);
    }
  }
};

// Calls fn(pointer to the elements); DeviceComm has checked that they are numbers.
template <class Fn>
void with_numbers(const TensorView& view, Fn&& fn) {
  switch (view.dtype()) {
    case DType::F64: fn(view.data<double>()); return;
    case DType::F32: fn(view.data<float>()); return;
    case DType::I64: fn(view.data<int64_t>()); return;
    case DType::I32: fn(view.data<int32_t>()); return;
    case DType::BF16:
    case DType::U8: break;
  }
  throw InternalError("{} is not reduced", view.to_string());
}

}  // namespace longhaul::detail
