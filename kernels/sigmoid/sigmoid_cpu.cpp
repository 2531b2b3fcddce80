// One vectorised pass over the elements.
#include "kernels/sigmoid/sigmoid_cpu.h"

#include "kernels/math/activations.h"

namespace longhaul::cpu {

void sigmoid_forward(const SigmoidForward& op) {
  dispatch_float(op.x.dtype(), "sigmoid_forward", [&](auto zero) {
    using T = decltype(zero);
    const T* x = op.x.data<T>();
    T* y = op.y.data<T>();
    const int64_t n = op.x.numel();
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      y[i] = math::sigmoid(x[i]);
    }
  });
}

void sigmoid_backward(const SigmoidBackward& op) {
  dispatch_float(op.dx.dtype(), "sigmoid_backward", [&](auto zero) {
    using T = decltype(zero);
    const T* dy = op.dy.data<T>();
    const T* y = op.y.data<T>();
    T* dx = op.dx.data<T>();
    const int64_t n = op.dx.numel();
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      dx[i] = dy[i] * y[i] * (T{1} - y[i]);
    }
  });
}

}  // namespace longhaul::cpu
