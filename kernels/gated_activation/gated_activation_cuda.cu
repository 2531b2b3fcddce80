// One pass over rows that may be strided. Inputs of an element are read before its outputs are written, so outputs may lie
// over inputs.
#include "kernels/gated_activation/gated_activation_cuda.h"
#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/math.cuh"

namespace longhaul::cuda {
namespace {

using namespace gpu;

struct Kind {
  bool situ;
  float beta_gate, beta_up, inverse_gate, inverse_up;

  explicit Kind(const Activation& a)
      : situ(a.kind == ActivationKind::SituGlu),
        beta_gate(static_cast<float>(a.beta_gate)),
        beta_up(static_cast<float>(a.beta_up)),
        inverse_gate(static_cast<float>(1 / a.beta_gate)),
        inverse_up(static_cast<float>(1 / a.beta_up)) {}
};

template <class T>
struct Forward {
  Rows<const T> gate, up;
  Rows<T> y;
  int64_t dim;
  Kind kind;
  template <int W>
  __device__ void apply(int64_t i) const {
    const int64_t row = i / dim, c = i % dim;
    float g[W], u[W];
    load<W>(gate[row] + c, g);
    load<W>(up[row] + c, u);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      g[j] = kind.situ ? kind.beta_gate * tanhf(g[j] * kind.inverse_gate) * sigmoid(g[j]) * (kind.beta_up * tanhf(u[j] * kind.inverse_up))
                       : silu(g[j]) * u[j];
    }
    store<W>(y[row] + c, g);
  }
};

// With t = tanh(g / beta1), v = tanh(u / beta2), s = sigmoid(g):
//   df/dg = ((1 - t^2) s + beta1 t s') beta2 v,   df/du = beta1 t s (1 - v^2)
template <class T>
struct Backward {
  Rows<const T> dy, gate, up;
  Rows<T> dgate, dup;
  int64_t dim;
  Kind kind;
  template <int W>
  __device__ void apply(int64_t i) const {
    const int64_t row = i / dim, c = i % dim;
    float d[W], g[W], u[W];
    load<W>(dy[row] + c, d);
    load<W>(gate[row] + c, g);
    load<W>(up[row] + c, u);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      if (kind.situ) {
        const float t = tanhf(g[j] * kind.inverse_gate), v = tanhf(u[j] * kind.inverse_up);
        const ValueAndDerivative s = sigmoid_and_derivative(g[j]);
        g[j] = d[j] * ((1.0f - t * t) * s.value + kind.beta_gate * t * s.derivative) * (kind.beta_up * v);
        u[j] = d[j] * (kind.beta_gate * t * s.value) * (1.0f - v * v);
      } else {
        const ValueAndDerivative s = silu_and_derivative(g[j]);
        g[j] = d[j] * s.derivative * u[j];
        u[j] = d[j] * s.value;
      }
    }
    store<W>(dgate[row] + c, g);
    store<W>(dup[row] + c, u);
  }
};

}  // namespace

void gated_activation_forward(ExecContext& ctx, const GatedActivationForward& op) {
  dispatch_compute(op.gate.dtype(), "gated_activation_forward", [&](auto zero) {
    using T = decltype(zero);
    launch_each(ctx, "gated_activation_forward", op.gate.numel(), is_wide({&op.gate, &op.up, &op.y}),
                Forward<T>{rows_of<const T>(op.gate), rows_of<const T>(op.up), rows_of<T>(op.y), op.gate.size(1), Kind(op.activation)});
  });
}

void gated_activation_backward(ExecContext& ctx, const GatedActivationBackward& op) {
  dispatch_compute(op.gate.dtype(), "gated_activation_backward", [&](auto zero) {
    using T = decltype(zero);
    launch_each(ctx, "gated_activation_backward", op.gate.numel(), is_wide({&op.dy, &op.gate, &op.up, &op.dgate, &op.dup}),
                Backward<T>{rows_of<const T>(op.dy), rows_of<const T>(op.gate), rows_of<const T>(op.up), rows_of<T>(op.dgate), rows_of<T>(op.dup),
                            op.gate.size(1), Kind(op.activation)});
  });
}

}  // namespace longhaul::cuda
