// One pass over the elements; without a gate a conversion.
#include "kernels/gated_output/gated_output_cuda.h"
#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/math.cuh"

namespace longhaul::cuda {
namespace {

using namespace gpu;

template <class T>
struct Forward {
  const float* o;
  const T* gate;  // nullptr: no gate
  T* y;
  template <int W>
  __device__ void apply(int64_t i) const {
    float v[W], g[W];
    load<W>(o + i, v);
    if (gate != nullptr) {
      load<W>(gate + i, g);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        v[j] *= sigmoid(g[j]);
      }
    }
    store<W>(y + i, v);
  }
};

template <class T>
struct Backward {
  const T* dy;
  const float* o;
  const T* gate;  // nullptr: no gate
  float* d_o;
  T* dgate;
  template <int W>
  __device__ void apply(int64_t i) const {
    float u[W], v[W], g[W];
    load<W>(dy + i, u);
    if (gate != nullptr) {
      load<W>(o + i, v);
      load<W>(gate + i, g);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        const ValueAndDerivative s = sigmoid_and_derivative(g[j]);
        g[j] = u[j] * v[j] * s.derivative;
        u[j] *= s.value;
      }
      store<W>(dgate + i, g);
    }
    store<W>(d_o + i, u);
  }
};

}  // namespace

void gated_output_forward(ExecContext& ctx, const GatedOutputForward& op) {
  dispatch_compute(op.y.dtype(), "gated_output_forward", [&](auto zero) {
    using T = decltype(zero);
    launch_each(ctx, "gated_output_forward", op.y.numel(), is_aligned({op.o.raw(), op.gate.raw(), op.y.raw()}),
                Forward<T>{op.o.data<float>(), op.gate.is_present() ? typed<T>(op.gate) : nullptr, typed<T>(op.y)});
  });
}

void gated_output_backward(ExecContext& ctx, const GatedOutputBackward& op) {
  const bool gated = op.gate.is_present();
  dispatch_compute(op.dy.dtype(), "gated_output_backward", [&](auto zero) {
    using T = decltype(zero);
    launch_each(ctx, "gated_output_backward", op.dy.numel(), is_aligned({op.dy.raw(), op.o.raw(), op.gate.raw(), op.d_o.raw(), op.dgate.raw()}),
                Backward<T>{typed<T>(op.dy), op.o.data<float>(), gated ? typed<T>(op.gate) : nullptr, op.d_o.data<float>(),
                            gated ? typed<T>(op.dgate) : nullptr});
  });
}

}  // namespace longhaul::cuda
