// Sums over a row are in double in a fixed order, and so is the sum of dscale over rows, in row order.
#include "kernels/rms_norm/rms_norm_cpu.h"

#include <algorithm>
#include <cmath>

#include "kernels/add_gradient.h"
#include "kernels/math/lane_sum.h"
#include "kernels/rows.h"

namespace longhaul::cpu {

void rms_norm_forward(const RmsNormForward& op) {
  dispatch_float(op.x.dtype(), "rms_norm_forward", [&](auto zero) {
    using T = decltype(zero);
    const Rows<T> x = rows_of<T>(op.x);
    const Rows<T> y = rows_of<T>(op.y);
    const T* scale = op.scale.data<T>();
    T* inv_rms = op.inv_rms.data<T>();
    const int64_t dim = op.x.size(1);
    for (int64_t row = 0; row < op.x.size(0); ++row) {
      const T* in = x[row];
      T* out = y[row];
      const double square = math::lane_sum(dim, [&](int64_t c) { return static_cast<double>(in[c]) * static_cast<double>(in[c]); });
      const T inverse = static_cast<T>(1.0 / std::sqrt(square / static_cast<double>(dim) + op.eps));
      inv_rms[row] = inverse;
#pragma omp simd
      for (int64_t c = 0; c < dim; ++c) {
        out[c] = in[c] * inverse * scale[c];
      }
    }
  });
}

// With n = x inv_rms and a = dy scale: dx = inv_rms (a - n mean(a n)), dscale = sum over rows of dy n.
void rms_norm_backward(const RmsNormBackward& op, const TensorView& sums) {
  dispatch_float(op.x.dtype(), "rms_norm_backward", [&](auto zero) {
    using T = decltype(zero);
    const Rows<T> x = rows_of<T>(op.x);
    const Rows<T> dy = rows_of<T>(op.dy);
    const Rows<T> dx = rows_of<T>(op.dx);
    const T* scale = op.scale.data<T>();
    const T* inv_rms = op.inv_rms.data<T>();
    const int64_t dim = op.x.size(1);
    double* sum = sums.data<double>();
    std::fill_n(sum, dim, 0.0);
    for (int64_t row = 0; row < op.x.size(0); ++row) {
      const T* in = x[row];
      const T* up = dy[row];
      T* out = dx[row];
      const T inverse = inv_rms[row];
      const double along = math::lane_sum(dim, [&](int64_t c) {
        return static_cast<double>(up[c] * scale[c]) * static_cast<double>(in[c] * inverse);
      });
      const T mean = static_cast<T>(along / static_cast<double>(dim));
#pragma omp simd
      for (int64_t c = 0; c < dim; ++c) {
        const T n = in[c] * inverse;
        const T u = up[c];
        sum[c] += static_cast<double>(u * n);
        out[c] = inverse * (u * scale[c] - n * mean);
      }
    }
    add_to_gradient(op.dscale, dim, [&](int64_t c) { return sum[c]; });
  });
}

}  // namespace longhaul::cpu
