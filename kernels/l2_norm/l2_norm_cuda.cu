// A warp (or a block, for long heads) for one head's vector.
#include "kernels/gpu/launch.cuh"
#include "kernels/l2_norm/l2_norm_cuda.h"

namespace longhaul::cuda {
namespace {

using namespace gpu;

template <class T, int W, int G>
__global__ void __launch_bounds__(kThreads) forward_kernel(const T* x, T* y, float* inv_norm, int64_t rows, int64_t dim) {
  const int64_t row = int64_t{blockIdx.x} * Group<G>::kGroups + Group<G>::index();
  if (row >= rows) {
    return;
  }
  float square = 0, v[W];
  for (int64_t c = Group<G>::thread() * W; c < dim; c += G * W) {
    load<W>(x + row * dim + c, v);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      square += v[j] * v[j];
    }
  }
  const float inverse = 1.0f / sqrtf(Group<G>::sum(square) + static_cast<float>(kL2NormEps));
  if (Group<G>::thread() == 0) {
    inv_norm[row] = inverse;
  }
  for (int64_t c = Group<G>::thread() * W; c < dim; c += G * W) {
    load<W>(x + row * dim + c, v);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      v[j] *= inverse;
    }
    store<W>(y + row * dim + c, v);
  }
}

// D: type of dy, the compute or the accurate type.
template <class T, class D, int W, int G>
__global__ void __launch_bounds__(kThreads) backward_kernel(const D* dy, const T* y, const float* inv_norm, T* dx, int64_t rows, int64_t dim) {
  const int64_t row = int64_t{blockIdx.x} * Group<G>::kGroups + Group<G>::index();
  if (row >= rows) {
    return;
  }
  float along = 0, v[W], u[W];
  for (int64_t c = Group<G>::thread() * W; c < dim; c += G * W) {
    load<W>(y + row * dim + c, v);
    load<W>(dy + row * dim + c, u);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      along += u[j] * v[j];
    }
  }
  along = Group<G>::sum(along);
  const float inverse = inv_norm[row];
  for (int64_t c = Group<G>::thread() * W; c < dim; c += G * W) {
    load<W>(y + row * dim + c, v);
    load<W>(dy + row * dim + c, u);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      v[j] = inverse * (u[j] - v[j] * along);
    }
    store<W>(dx + row * dim + c, v);
  }
}

}  // namespace

void l2_norm_forward(ExecContext& ctx, const L2NormForward& op) {
  const int64_t rows = op.inv_norm.numel(), dim = op.x.size(2);
  if (rows == 0) {
    return;
  }
  dispatch_compute(op.x.dtype(), "l2_norm_forward", [&](auto zero) {
    using T = decltype(zero);
    with_row_shape(is_wide({&op.x, &op.y}), dim, [&](auto w, auto g) {
      forward_kernel<T, w(), g()><<<blocks_for_rows(rows, g()), kThreads, 0, stream_of(ctx)>>>(typed<T>(op.x), typed<T>(op.y), op.inv_norm.data<float>(),
                                                                                              rows, dim);
    });
  });
  LH_CHECK_LAUNCH(ctx, "l2_norm_forward");
}

void l2_norm_backward(ExecContext& ctx, const L2NormBackward& op) {
  const int64_t rows = op.inv_norm.numel(), dim = op.y.size(2);
  if (rows == 0) {
    return;
  }
  dispatch_compute(op.y.dtype(), op.dy.dtype(), "l2_norm_backward", [&](auto zero, auto dy_zero) {
    using T = decltype(zero);
    using D = decltype(dy_zero);
    with_row_shape(is_wide({&op.y, &op.dy, &op.dx}), dim, [&](auto w, auto g) {
      backward_kernel<T, D, w(), g()><<<blocks_for_rows(rows, g()), kThreads, 0, stream_of(ctx)>>>(
          typed<D>(op.dy), typed<T>(op.y), op.inv_norm.data<float>(), typed<T>(op.dx), rows, dim);
    });
  });
  LH_CHECK_LAUNCH(ctx, "l2_norm_backward");
}

}  // namespace longhaul::cuda
