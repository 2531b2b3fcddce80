// One pass over rows. Inputs of an element are read before its outputs are written, so outputs may lie over inputs.
#include "kernels/gated_activation/gated_activation_cpu.h"

#include "kernels/math/activations.h"
#include "kernels/rows.h"

namespace longhaul::cpu {
namespace {

// The betas in the type of the computation, with their inverses.
template <class T>
struct Betas {
  T gate, up, inverse_gate, inverse_up;

  explicit Betas(const Activation& activation)
      : gate(static_cast<T>(activation.beta_gate)),
        up(static_cast<T>(activation.beta_up)),
        inverse_gate(static_cast<T>(1 / activation.beta_gate)),
        inverse_up(static_cast<T>(1 / activation.beta_up)) {}
};

template <class T>
void situ_glu_row(const T* g, const T* u, T* y, int64_t dim, const Betas<T>& beta) {
#pragma omp simd
  for (int64_t i = 0; i < dim; ++i) {
    y[i] = beta.gate * math::tanh(g[i] * beta.inverse_gate) * math::sigmoid(g[i]) *
           (beta.up * math::tanh(u[i] * beta.inverse_up));
  }
}

template <class T>
void swi_glu_row(const T* g, const T* u, T* y, int64_t dim) {
#pragma omp simd
  for (int64_t i = 0; i < dim; ++i) {
    y[i] = math::silu(g[i]) * u[i];
  }
}

// With t = tanh(g / beta1), v = tanh(u / beta2), s = sigmoid(g):
//   df/dg = ((1 - t^2) s + beta1 t s') beta2 v,   df/du = beta1 t s (1 - v^2)
template <class T>
void situ_glu_backward_row(const T* dy, const T* g, const T* u, T* dg, T* du, int64_t dim, const Betas<T>& beta) {
#pragma omp simd
  for (int64_t i = 0; i < dim; ++i) {
    const T t = math::tanh(g[i] * beta.inverse_gate);
    const T v = math::tanh(u[i] * beta.inverse_up);
    const auto [s, ds] = math::sigmoid_and_derivative(g[i]);
    const T d = dy[i];
    dg[i] = d * ((T{1} - t * t) * s + beta.gate * t * ds) * (beta.up * v);
    du[i] = d * (beta.gate * t * s) * (T{1} - v * v);
  }
}

template <class T>
void swi_glu_backward_row(const T* dy, const T* g, const T* u, T* dg, T* du, int64_t dim) {
#pragma omp simd
  for (int64_t i = 0; i < dim; ++i) {
    const auto [silu, derivative] = math::silu_and_derivative(g[i]);
    const T d = dy[i];
    const T up = u[i];
    dg[i] = d * derivative * up;
    du[i] = d * silu;
  }
}

}  // namespace

void gated_activation_forward(const GatedActivationForward& op) {
  dispatch_float(op.gate.dtype(), "gated_activation_forward", [&](auto zero) {
    using T = decltype(zero);
    const Rows<T> gate = rows_of<T>(op.gate), up = rows_of<T>(op.up), y = rows_of<T>(op.y);
    const Betas<T> beta(op.activation);
    const int64_t dim = op.gate.size(1);
    for (int64_t row = 0; row < op.gate.size(0); ++row) {
      switch (op.activation.kind) {
        case ActivationKind::SituGlu: situ_glu_row(gate[row], up[row], y[row], dim, beta); break;
        case ActivationKind::SwiGlu: swi_glu_row(gate[row], up[row], y[row], dim); break;
      }
    }
  });
}

void gated_activation_backward(const GatedActivationBackward& op) {
  dispatch_float(op.gate.dtype(), "gated_activation_backward", [&](auto zero) {
    using T = decltype(zero);
    const Rows<T> dy = rows_of<T>(op.dy), gate = rows_of<T>(op.gate), up = rows_of<T>(op.up);
    const Rows<T> dgate = rows_of<T>(op.dgate), dup = rows_of<T>(op.dup);
    const Betas<T> beta(op.activation);
    const int64_t dim = op.gate.size(1);
    for (int64_t row = 0; row < op.gate.size(0); ++row) {
      switch (op.activation.kind) {
        case ActivationKind::SituGlu:
          situ_glu_backward_row(dy[row], gate[row], up[row], dgate[row], dup[row], dim, beta);
          break;
        case ActivationKind::SwiGlu:
          swi_glu_backward_row(dy[row], gate[row], up[row], dgate[row], dup[row], dim);
          break;
      }
    }
  });
}

}  // namespace longhaul::cpu
