// Copies of short rows; the shared part's gradient is summed over heads in head order, in float.
#include "kernels/gpu/launch.cuh"
#include "kernels/mla_pack/mla_pack_cuda.h"

namespace longhaul::cuda {
namespace {

using namespace gpu;

template <class T>
struct Forward {
  const T* own;
  int64_t token_stride, head_stride;  // of `own`
  Rows<const T> shared;
  T* k;
  int64_t heads, nope_dim, dim;
  template <int W>
  __device__ void apply(int64_t i) const {
    const int64_t c = i % dim, row = i / dim, head = row % heads, t = row / heads;
    float v[W];
    load<W>(c < nope_dim ? own + t * token_stride + head * head_stride + c : shared[t] + (c - nope_dim), v);
    store<W>(k + i, v);
  }
};

template <class T>
struct OwnBackward {
  const T* dk;
  T* own;
  int64_t token_stride, head_stride;
  int64_t heads, nope_dim, dim;
  template <int W>
  __device__ void apply(int64_t i) const {
    const int64_t c = i % nope_dim, row = i / nope_dim, head = row % heads, t = row / heads;
    float v[W];
    load<W>(dk + row * dim + c, v);
    store<W>(own + t * token_stride + head * head_stride + c, v);
  }
};

template <class T>
struct SharedBackward {
  const T* dk;
  Rows<T> shared;
  int64_t heads, nope_dim, dim;
  template <int W>
  __device__ void apply(int64_t i) const {
    const int64_t shared_dim = dim - nope_dim, c = i % shared_dim, t = i / shared_dim;
    float sum[W] = {}, v[W];
    for (int64_t head = 0; head < heads; ++head) {
      load<W>(dk + (t * heads + head) * dim + nope_dim + c, v);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        sum[j] += v[j];
      }
    }
    store<W>(shared[t] + c, sum);
  }
};

}  // namespace

void mla_pack_forward(ExecContext& ctx, const MlaPackForward& op) {
  dispatch_compute(op.k.dtype(), "mla_pack_forward", [&](auto zero) {
    using T = decltype(zero);
    launch_each(ctx, "mla_pack_forward", op.k.numel(), is_wide({&op.k_heads, &op.k_shared, &op.k}),
                Forward<T>{typed<T>(op.k_heads), op.k_heads.stride(0), op.k_heads.stride(1), rows_of<const T>(op.k_shared), typed<T>(op.k), op.k.size(1),
                           op.k_heads.size(2), op.k.size(2)});
  });
}

void mla_pack_backward(ExecContext& ctx, const MlaPackBackward& op) {
  const int64_t heads = op.dk.size(1), nope_dim = op.dk_heads.size(2), dim = op.dk.size(2);
  const bool wide = is_wide({&op.dk, &op.dk_heads, &op.dk_shared});
  dispatch_compute(op.dk.dtype(), "mla_pack_backward", [&](auto zero) {
    using T = decltype(zero);
    launch_each(ctx, "mla_pack_backward", op.dk_heads.numel(), wide,
                OwnBackward<T>{typed<T>(op.dk), typed<T>(op.dk_heads), op.dk_heads.stride(0), op.dk_heads.stride(1), heads, nope_dim, dim});
    launch_each(ctx, "mla_pack_backward", op.dk_shared.numel(), wide, SharedBackward<T>{typed<T>(op.dk), rows_of<T>(op.dk_shared), heads, nope_dim, dim});
  });
}

}  // namespace longhaul::cuda
