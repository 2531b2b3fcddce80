// Adds sums that an operation kept in double to a gradient of either float type.
#pragma once

#include <cstdint>

#include "tensor/tensor_view.h"

namespace longhaul::cpu {

// gradient[i] += value(i) for i in [0, n)
template <class Fn>
void add_to_gradient(const TensorView& gradient, int64_t n, Fn&& value) {
  dispatch_float(gradient.dtype(), "gradient", [&](auto zero) {
    using G = decltype(zero);
    G* out = gradient.data<G>();
    for (int64_t i = 0; i < n; ++i) {
      out[i] += static_cast<G>(value(i));
    }
  });
}

}  // namespace longhaul::cpu
