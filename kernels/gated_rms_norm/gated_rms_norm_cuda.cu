// A warp (or a block, for long heads) for one head of one token. In backward a block walks over its share of them and keeps
// the sums of dscale in shared memory.
#include "kernels/gated_rms_norm/gated_rms_norm_cuda.h"
#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/math.cuh"
#include "kernels/gpu/partial_sums.h"

namespace longhaul::cuda {
namespace {

using namespace gpu;

template <class T>
struct Forward {
  const T *o, *gate;  // [rows, dim]
  const float* scale;
  T* y;
  float* inv_rms;
  int64_t rows, dim;
  float eps;
};

template <class T, int W, int G>
__global__ void __launch_bounds__(kThreads) forward_kernel(Forward<T> p) {
  const int64_t row = int64_t{blockIdx.x} * Group<G>::kGroups + Group<G>::index();
  if (row >= p.rows) {
    return;
  }
  const int64_t at = row * p.dim;
  float square = 0, v[W], s[W], gate[W];
  for (int64_t c = Group<G>::thread() * W; c < p.dim; c += G * W) {
    load<W>(p.o + at + c, v);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      square += v[j] * v[j];
    }
  }
  const float inverse = 1.0f / sqrtf(Group<G>::sum(square) / static_cast<float>(p.dim) + p.eps);
  if (Group<G>::thread() == 0) {
    p.inv_rms[row] = inverse;
  }
  for (int64_t c = Group<G>::thread() * W; c < p.dim; c += G * W) {
    load<W>(p.o + at + c, v);
    load<W>(p.scale + c, s);
    load<W>(p.gate + at + c, gate);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      v[j] = v[j] * inverse * s[j] * sigmoid(gate[j]);
    }
    store<W>(p.y + at + c, v);
  }
}

template <class T>
struct Backward {
  const T *dy, *o, *gate;
  const float *scale, *inv_rms;
  T *d_o, *dgate;
  float* partials;
  int64_t rows, dim, share;
};

// With n = o inv_rms, s = sigmoid(gate) and a = dy s scale, the gradient of n:
//   dgate = dy n scale s',  dscale = sum of dy s n,  d_o = inv_rms (a - n mean(a n))
template <class T, int W, int G>
__global__ void __launch_bounds__(kThreads) backward_kernel(Backward<T> p) {
  extern __shared__ float shared[];
  const ColumnSums<W, G> dscale{shared, p.dim};
  dscale.clear();
  const int64_t begin = int64_t{blockIdx.x} * p.share, end = min(begin + p.share, p.rows);
  for (int64_t row = begin + Group<G>::index(); row < end; row += Group<G>::kGroups) {
    const int64_t at = row * p.dim;
    const float inverse = p.inv_rms[row];
    float along = 0, v[W], u[W], s[W], gate[W];
    for (int64_t c = Group<G>::thread() * W; c < p.dim; c += G * W) {
      load<W>(p.o + at + c, v);
      load<W>(p.dy + at + c, u);
      load<W>(p.scale + c, s);
      load<W>(p.gate + at + c, gate);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        const ValueAndDerivative open = sigmoid_and_derivative(gate[j]);
        const float n = v[j] * inverse;
        gate[j] = u[j] * n * s[j] * open.derivative;
        dscale.at(c, j) += u[j] * open.value * n;
        along += u[j] * open.value * s[j] * n;
      }
      store<W>(p.dgate + at + c, gate);
    }
    const float mean = Group<G>::sum(along) / static_cast<float>(p.dim);
    for (int64_t c = Group<G>::thread() * W; c < p.dim; c += G * W) {
      load<W>(p.o + at + c, v);
      load<W>(p.dy + at + c, u);
      load<W>(p.scale + c, s);
      load<W>(p.gate + at + c, gate);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        v[j] = inverse * (u[j] * sigmoid(gate[j]) * s[j] - v[j] * inverse * mean);
      }
      store<W>(p.d_o + at + c, v);
    }
  }
  dscale.write(p.partials + blockIdx.x * p.dim);
}

}  // namespace

void gated_rms_norm_forward(ExecContext& ctx, const GatedRmsNormForward& op) {
  const int64_t rows = op.inv_rms.numel(), dim = op.o.size(2);
  if (rows == 0) {
    return;
  }
  dispatch_compute(op.o.dtype(), "gated_rms_norm_forward", [&](auto zero) {
    using T = decltype(zero);
    const Forward<T> p{typed<T>(op.o), typed<T>(op.gate), op.scale.data<float>(), typed<T>(op.y), op.inv_rms.data<float>(), rows, dim, static_cast<float>(op.eps)};
    with_row_shape(is_wide({&op.o, &op.gate, &op.scale, &op.y}), dim, [&](auto w, auto g) {
      forward_kernel<T, w(), g()><<<blocks_for_rows(rows, g()), kThreads, 0, stream_of(ctx)>>>(p);
    });
  });
  LH_CHECK_LAUNCH(ctx, "gated_rms_norm_forward");
}

void gated_rms_norm_backward(ExecContext& ctx, const GatedRmsNormBackward& op, const TensorView& partials) {
  const int64_t rows = op.inv_rms.numel(), dim = op.o.size(2), blocks = partials.size(0);
  dispatch_compute(op.o.dtype(), "gated_rms_norm_backward", [&](auto zero) {
    using T = decltype(zero);
    const Backward<T> p{typed<T>(op.dy), typed<T>(op.o), typed<T>(op.gate), op.scale.data<float>(), op.inv_rms.data<float>(), typed<T>(op.d_o),
                        typed<T>(op.dgate), partials.data<float>(), rows, dim, ceil_div(rows, blocks)};
    with_row_shape(is_wide({&op.dy, &op.o, &op.gate, &op.scale, &op.d_o, &op.dgate}), dim, [&](auto w, auto g) {
      const int64_t bytes = ColumnSums<w(), g()>::shared_bytes(dim);
      allow_shared(backward_kernel<T, w(), g()>, bytes);
      backward_kernel<T, w(), g()><<<static_cast<unsigned>(blocks), kThreads, static_cast<size_t>(bytes), stream_of(ctx)>>>(p);
    });
  });
  LH_CHECK_LAUNCH(ctx, "gated_rms_norm_backward");
  add_partial_sums(ctx, partials, op.dscale);
}

}  // namespace longhaul::cuda
