// One head's vector at a time; its sums are in double in a fixed order.
#include "kernels/l2_norm/l2_norm_cpu.h"

#include <cmath>

#include "kernels/math/lane_sum.h"

namespace longhaul::cpu {

void l2_norm_forward(const L2NormForward& op) {
  dispatch_float(op.x.dtype(), "l2_norm_forward", [&](auto zero) {
    using T = decltype(zero);
    const int64_t dim = op.x.size(2);
    T* inv_norm = op.inv_norm.data<T>();
    for (int64_t row = 0; row < op.inv_norm.numel(); ++row) {
      const T* x = op.x.data<T>() + row * dim;
      T* y = op.y.data<T>() + row * dim;
      const double square = math::lane_sum(dim, [&](int64_t c) { return static_cast<double>(x[c]) * static_cast<double>(x[c]); });
      const T inverse = static_cast<T>(1.0 / std::sqrt(square + kL2NormEps));
      inv_norm[row] = inverse;
#pragma omp simd
      for (int64_t c = 0; c < dim; ++c) {
        y[c] = x[c] * inverse;
      }
    }
  });
}

void l2_norm_backward(const L2NormBackward& op) {
  dispatch_float(op.y.dtype(), "l2_norm_backward", [&](auto zero) {
    using T = decltype(zero);
    const int64_t dim = op.y.size(2);
    const T* inv_norm = op.inv_norm.data<T>();
    for (int64_t row = 0; row < op.inv_norm.numel(); ++row) {
      const T* y = op.y.data<T>() + row * dim;
      const T* dy = op.dy.data<T>() + row * dim;
      T* dx = op.dx.data<T>() + row * dim;
      const T along = static_cast<T>(
          math::lane_sum(dim, [&](int64_t c) { return static_cast<double>(dy[c]) * static_cast<double>(y[c]); }));
      const T inverse = inv_norm[row];
#pragma omp simd
      for (int64_t c = 0; c < dim; ++c) {
        dx[c] = inverse * (dy[c] - y[c] * along);
      }
    }
  });
}

}  // namespace longhaul::cpu
