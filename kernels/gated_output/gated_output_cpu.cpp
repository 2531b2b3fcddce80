// One vectorised pass; without a gate a copy, since compute and accurate type are the same here.
#include "kernels/gated_output/gated_output_cpu.h"

#include <algorithm>

#include "kernels/math/activations.h"

namespace longhaul::cpu {

void gated_output_forward(const GatedOutputForward& op) {
  dispatch_float(op.y.dtype(), "gated_output_forward", [&](auto zero) {
    using T = decltype(zero);
    const T* o = op.o.data<T>();
    T* y = op.y.data<T>();
    const int64_t n = op.y.numel();
    if (!op.gate.is_present()) {
      std::copy_n(o, n, y);
      return;
    }
    const T* gate = op.gate.data<T>();
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      y[i] = o[i] * math::sigmoid(gate[i]);
    }
  });
}

void gated_output_backward(const GatedOutputBackward& op) {
  dispatch_float(op.dy.dtype(), "gated_output_backward", [&](auto zero) {
    using T = decltype(zero);
    const T* dy = op.dy.data<T>();
    const T* o = op.o.data<T>();
    T* d_o = op.d_o.data<T>();
    const int64_t n = op.dy.numel();
    if (!op.gate.is_present()) {
      std::copy_n(dy, n, d_o);
      return;
    }
    const T* gate = op.gate.data<T>();
    T* dgate = op.dgate.data<T>();
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const auto [s, ds] = math::sigmoid_and_derivative(gate[i]);
      const T up = dy[i];
      const T out = o[i];
      d_o[i] = up * s;
      dgate[i] = up * out * ds;
    }
  });
}

}  // namespace longhaul::cpu
