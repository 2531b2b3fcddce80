// A warp or a block for each row; the row is read twice, the second time from the caches. In backward a block walks over
// its share of the rows and keeps the sums of dscale in shared memory.
#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/partial_sums.h"
#include "kernels/rms_norm/rms_norm_cuda.h"

namespace longhaul::cuda {
namespace {

using namespace gpu;

template <class T>
struct Forward {
  Rows<const T> x;
  const T* scale;
  Rows<T> y;
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
  const T* x = p.x[row];
  T* y = p.y[row];
  float square = 0, v[W], s[W];
  for (int64_t c = Group<G>::thread() * W; c < p.dim; c += G * W) {
    load<W>(x + c, v);
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
    load<W>(x + c, v);
    load<W>(p.scale + c, s);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      v[j] = v[j] * inverse * s[j];
    }
    store<W>(y + c, v);
  }
}

template <class T>
struct Backward {
  Rows<const T> dy, x;
  const T* scale;
  const float* inv_rms;
  Rows<T> dx;
  float* partials;
  int64_t rows, dim, share;
};

// With n = x inv_rms and a = dy scale: dx = inv_rms (a - n mean(a n)), dscale = sum over rows of dy n.
template <class T, int W, int G>
__global__ void __launch_bounds__(kThreads) backward_kernel(Backward<T> p) {
  extern __shared__ float shared[];
  const ColumnSums<W, G> dscale{shared, p.dim};
  dscale.clear();
  const int64_t begin = int64_t{blockIdx.x} * p.share, end = min(begin + p.share, p.rows);
  for (int64_t row = begin + Group<G>::index(); row < end; row += Group<G>::kGroups) {
    const T *x = p.x[row], *dy = p.dy[row];
    T* dx = p.dx[row];
    const float inverse = p.inv_rms[row];
    float along = 0, v[W], u[W], s[W];
    for (int64_t c = Group<G>::thread() * W; c < p.dim; c += G * W) {
      load<W>(x + c, v);
      load<W>(dy + c, u);
      load<W>(p.scale + c, s);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        along += u[j] * s[j] * (v[j] * inverse);
      }
    }
    const float mean = Group<G>::sum(along) / static_cast<float>(p.dim);
    for (int64_t c = Group<G>::thread() * W; c < p.dim; c += G * W) {
      load<W>(x + c, v);
      load<W>(dy + c, u);
      load<W>(p.scale + c, s);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        const float n = v[j] * inverse;
        dscale.at(c, j) += u[j] * n;
        v[j] = inverse * (u[j] * s[j] - n * mean);
      }
      store<W>(dx + c, v);
    }
  }
  dscale.write(p.partials + blockIdx.x * p.dim);
}

}  // namespace

void rms_norm_forward(ExecContext& ctx, const RmsNormForward& op) {
  const int64_t rows = op.x.size(0), dim = op.x.size(1);
  if (rows == 0) {
    return;
  }
  dispatch_compute(op.x.dtype(), "rms_norm_forward", [&](auto zero) {
    using T = decltype(zero);
    const Forward<T> p{rows_of<const T>(op.x), typed<T>(op.scale), rows_of<T>(op.y), op.inv_rms.data<float>(), rows, dim, static_cast<float>(op.eps)};
    with_row_shape(is_wide({&op.x, &op.scale, &op.y}), dim, [&](auto w, auto g) {
      forward_kernel<T, w(), g()><<<blocks_for_rows(rows, g()), kThreads, 0, stream_of(ctx)>>>(p);
    });
  });
  LH_CHECK_LAUNCH(ctx, "rms_norm_forward");
}

void rms_norm_backward(ExecContext& ctx, const RmsNormBackward& op, const TensorView& partials) {
  const int64_t rows = op.x.size(0), dim = op.x.size(1), blocks = partials.size(0);
  dispatch_compute(op.x.dtype(), "rms_norm_backward", [&](auto zero) {
    using T = decltype(zero);
    const Backward<T> p{rows_of<const T>(op.dy), rows_of<const T>(op.x), typed<T>(op.scale), op.inv_rms.data<float>(), rows_of<T>(op.dx),
                        partials.data<float>(), rows, dim, ceil_div(rows, blocks)};
    with_row_shape(is_wide({&op.dy, &op.x, &op.scale, &op.dx}), dim, [&](auto w, auto g) {
      const int64_t bytes = ColumnSums<w(), g()>::shared_bytes(dim);
      allow_shared(backward_kernel<T, w(), g()>, bytes);
      backward_kernel<T, w(), g()><<<static_cast<unsigned>(blocks), kThreads, static_cast<size_t>(bytes), stream_of(ctx)>>>(p);
    });
  });
  LH_CHECK_LAUNCH(ctx, "rms_norm_backward");
  add_partial_sums(ctx, partials, op.dscale);
}

}  // namespace longhaul::cuda
