// One token and head at a time. Parameter gradients are summed over tokens in double, channel by channel in token order.
#include "kernels/decay_gate/decay_gate_cpu.h"

#include <algorithm>
#include <cmath>

#include "kernels/add_gradient.h"
#include "kernels/math/activations.h"
#include "kernels/math/lane_sum.h"

namespace longhaul::cpu {
namespace {

// One head's vector of one token, and the sums over tokens of that head's channels.
template <class T>
struct HeadSlice {
  const T* dg;       // [head_dim]
  const T* z;        // [head_dim]
  const T* dt_bias;  // [head_dim]
  T* dz;             // [head_dim]
  double* a_log_terms;
  double* dt_bias_sums;
};

// With u = z + dt_bias, A = exp(a_log), s = sigmoid(A u): dz = dg bound s' A, and da_log is the sum of dz u.
template <class T>
void bounded_backward(const HeadSlice<T>& head, T rate, T bound, int64_t dim) {
#pragma omp simd
  for (int64_t c = 0; c < dim; ++c) {
    const T u = head.z[c] + head.dt_bias[c];
    const T dz = head.dg[c] * bound * math::sigmoid_and_derivative(rate * u).derivative * rate;
    head.dz[c] = dz;
    head.dt_bias_sums[c] += static_cast<double>(dz);
    head.a_log_terms[c] += static_cast<double>(dz * u);
  }
}

// dz = -dg A sigmoid(u), and da_log is the sum of dg g.
template <class T>
void softplus_backward(const HeadSlice<T>& head, T rate, int64_t dim) {
  for (int64_t c = 0; c < dim; ++c) {
    const T u = head.z[c] + head.dt_bias[c];
    const T dg = head.dg[c];
    const T dz = -dg * rate * math::sigmoid(u);
    head.dz[c] = dz;
    head.dt_bias_sums[c] += static_cast<double>(dz);
    head.a_log_terms[c] += static_cast<double>(dg * (-rate * math::softplus(u)));
  }
}

}  // namespace

void decay_gate_forward(const DecayGateForward& op) {
  dispatch_float(op.z.dtype(), "decay_gate_forward", [&](auto zero) {
    using T = decltype(zero);
    const int64_t heads = op.z.size(1);
    const int64_t dim = op.z.size(2);
    const auto bound = static_cast<T>(op.lower_bound);
    for (int64_t row = 0; row < op.z.size(0) * heads; ++row) {
      const int64_t head = row % heads;
      const T rate = std::exp(op.a_log.data<T>()[head]);
      const T* z = op.z.data<T>() + row * dim;
      const T* bias = op.dt_bias.data<T>() + head * dim;
      T* g = op.g.data<T>() + row * dim;
      if (op.kind == DecayKind::Softplus) {
        for (int64_t c = 0; c < dim; ++c) {
          g[c] = -rate * math::softplus(z[c] + bias[c]);
        }
        continue;
      }
#pragma omp simd
      for (int64_t c = 0; c < dim; ++c) {
        g[c] = bound * math::sigmoid(rate * (z[c] + bias[c]));
      }
    }
  });
}

void decay_gate_backward(const DecayGateBackward& op, const DecayGateScratch& scratch) {
  dispatch_float(op.z.dtype(), "decay_gate_backward", [&](auto zero) {
    using T = decltype(zero);
    const int64_t heads = op.z.size(1);
    const int64_t dim = op.z.size(2);
    double* a_log_terms = scratch.a_log_terms.data<double>();
    double* dt_bias_sums = scratch.dt_bias_sums.data<double>();
    std::fill_n(a_log_terms, heads * dim, 0.0);
    std::fill_n(dt_bias_sums, heads * dim, 0.0);
    for (int64_t row = 0; row < op.z.size(0) * heads; ++row) {
      const int64_t head = row % heads;
      const T rate = std::exp(op.a_log.data<T>()[head]);
      const HeadSlice<T> slice{
          .dg = op.dg.data<T>() + row * dim,
          .z = op.z.data<T>() + row * dim,
          .dt_bias = op.dt_bias.data<T>() + head * dim,
          .dz = op.dz.data<T>() + row * dim,
          .a_log_terms = a_log_terms + head * dim,
          .dt_bias_sums = dt_bias_sums + head * dim,
      };
      if (op.kind == DecayKind::Bounded) {
        bounded_backward(slice, rate, static_cast<T>(op.lower_bound), dim);
      } else {
        softplus_backward(slice, rate, dim);
      }
    }
    add_to_gradient(op.ddt_bias, heads * dim, [&](int64_t c) { return dt_bias_sums[c]; });
    add_to_gradient(op.da_log, heads, [&](int64_t head) {
      const double* terms = a_log_terms + head * dim;
      return math::lane_sum(dim, [&](int64_t c) { return terms[c]; });
    });
  });
}

}  // namespace longhaul::cpu
