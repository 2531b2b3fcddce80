// One head of one token at a time. Sums over a head are in double in a fixed order; dscale is summed in double over
// tokens and then heads, in that order.
#include "kernels/gated_rms_norm/gated_rms_norm_cpu.h"

#include <algorithm>
#include <cmath>

#include "kernels/add_gradient.h"
#include "kernels/math/activations.h"
#include "kernels/math/lane_sum.h"

namespace longhaul::cpu {
namespace {

// One head of one token.
template <class T>
void forward_row(const T* o, const T* scale, const T* gate, T inverse, T* y, int64_t dim) {
#pragma omp simd
  for (int64_t c = 0; c < dim; ++c) {
    y[c] = o[c] * inverse * scale[c] * math::sigmoid(gate[c]);
  }
}

// Writes dgate, adds to the sums of dscale, and leaves the gradient of n = o inv_rms in `dn`.
template <class T>
void gate_backward_row(const T* dy, const T* o, const T* scale, const T* gate, T inverse, T* dgate, T* dn,
                       double* dscale_sum, int64_t dim) {
#pragma omp simd
  for (int64_t c = 0; c < dim; ++c) {
    const auto [s, ds] = math::sigmoid_and_derivative(gate[c]);
    const T n = o[c] * inverse;
    const T up = dy[c];
    dgate[c] = up * n * scale[c] * ds;
    dscale_sum[c] += static_cast<double>(up * s * n);
    dn[c] = up * s * scale[c];
  }
}

}  // namespace

void gated_rms_norm_forward(const GatedRmsNormForward& op) {
  dispatch_float(op.o.dtype(), "gated_rms_norm_forward", [&](auto zero) {
    using T = decltype(zero);
    const int64_t dim = op.o.size(2);
    const T* scale = op.scale.data<T>();
    T* inv_rms = op.inv_rms.data<T>();
    for (int64_t row = 0; row < op.inv_rms.numel(); ++row) {
      const T* o = op.o.data<T>() + row * dim;
      const T* gate = op.gate.data<T>() + row * dim;
      T* y = op.y.data<T>() + row * dim;
      const double square = math::lane_sum(dim, [&](int64_t c) { return static_cast<double>(o[c]) * static_cast<double>(o[c]); });
      const T inverse = static_cast<T>(1.0 / std::sqrt(square / static_cast<double>(dim) + op.eps));
      inv_rms[row] = inverse;
      forward_row(o, scale, gate, inverse, y, dim);
    }
  });
}

// With n = o inv_rms, s = sigmoid(gate) and a = dy s scale, the gradient of n:
//   dgate = dy n scale s',  dscale = sum of dy s n,  d_o = inv_rms (a - n mean(a n))
void gated_rms_norm_backward(const GatedRmsNormBackward& op, const GatedRmsNormScratch& scratch) {
  dispatch_float(op.o.dtype(), "gated_rms_norm_backward", [&](auto zero) {
    using T = decltype(zero);
    const int64_t dim = op.o.size(2);
    const T* scale = op.scale.data<T>();
    const T* inv_rms = op.inv_rms.data<T>();
    T* a = scratch.dnormalised.data<T>();
    double* sum = scratch.dscale_sums.data<double>();
    std::fill_n(sum, dim, 0.0);
    for (int64_t row = 0; row < op.inv_rms.numel(); ++row) {
      const T* dy = op.dy.data<T>() + row * dim;
      const T* o = op.o.data<T>() + row * dim;
      const T* gate = op.gate.data<T>() + row * dim;
      T* d_o = op.d_o.data<T>() + row * dim;
      T* dgate = op.dgate.data<T>() + row * dim;
      const T inverse = inv_rms[row];
      gate_backward_row(dy, o, scale, gate, inverse, dgate, a, sum, dim);
      const double along = math::lane_sum(dim, [&](int64_t c) { return static_cast<double>(a[c]) * static_cast<double>(o[c] * inverse); });
      const T mean = static_cast<T>(along / static_cast<double>(dim));
#pragma omp simd
      for (int64_t c = 0; c < dim; ++c) {
        d_o[c] = inverse * (a[c] - o[c] * inverse * mean);
      }
    }
    add_to_gradient(op.dscale, dim, [&](int64_t c) { return sum[c]; });
  });
}

}  // namespace longhaul::cpu
