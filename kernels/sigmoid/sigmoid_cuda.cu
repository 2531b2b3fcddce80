// One pass over the elements.
#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/math.cuh"
#include "kernels/sigmoid/sigmoid_cuda.h"

namespace longhaul::cuda {
namespace {

using namespace gpu;

template <class T>
struct Forward {
  const T* x;
  float* y;
  template <int W>
  __device__ void apply(int64_t i) const {
    float v[W];
    load<W>(x + i, v);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      v[j] = sigmoid(v[j]);
    }
    store<W>(y + i, v);
  }
};

template <class T>
struct Backward {
  const float *dy, *y;
  T* dx;
  template <int W>
  __device__ void apply(int64_t i) const {
    float u[W], v[W];
    load<W>(dy + i, u);
    load<W>(y + i, v);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      u[j] = u[j] * v[j] * (1.0f - v[j]);
    }
    store<W>(dx + i, u);
  }
};

}  // namespace

void sigmoid_forward(ExecContext& ctx, const SigmoidForward& op) {
  dispatch_compute(op.x.dtype(), "sigmoid_forward", [&](auto zero) {
    using T = decltype(zero);
    launch_each(ctx, "sigmoid_forward", op.x.numel(), is_aligned({op.x.raw(), op.y.raw()}), Forward<T>{typed<T>(op.x), op.y.data<float>()});
  });
}

void sigmoid_backward(ExecContext& ctx, const SigmoidBackward& op) {
  dispatch_compute(op.dx.dtype(), "sigmoid_backward", [&](auto zero) {
    using T = decltype(zero);
    launch_each(ctx, "sigmoid_backward", op.dx.numel(), is_aligned({op.dy.raw(), op.y.raw(), op.dx.raw()}),
                Backward<T>{op.dy.data<float>(), op.y.data<float>(), typed<T>(op.dx)});
  });
}

}  // namespace longhaul::cuda
