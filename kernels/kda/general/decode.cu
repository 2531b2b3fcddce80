// One token a sequence (kda_decode.h). A block has a sequence, a head and a slice of 32 value columns, which do not need each
// other; a thread has four columns of every 32nd key row, in registers, so that a state is read once and written once: the
// kernel is bound by those bytes. The two sums over key rows have a fixed order, so results repeat bit for bit.
#include "kernels/kda/general/arguments.cuh"
#include "kernels/kda/kda_decode.h"

namespace longhaul::cuda {
namespace kda_general {
namespace {

constexpr int kSlice = 32;                // value columns of a block
constexpr int kLanes = kSlice / 4;        // threads beside each other in a row
constexpr int kRows = kThreads / kLanes;  // key rows at a time
constexpr int kWarps = kThreads / 32;

template <class T>
struct Decode {
  int key_dim, value_dim;
  const T* q;
  const T* k;
  const T* v;
  const float* g;
  const float* beta;
  float scale;
  float* state;
  T* o;
};

__device__ float4 add4(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
__device__ float4 multiply_add4(float a, float4 b, float4 c) {
  return make_float4(fmaf(a, b.x, c.x), fmaf(a, b.y, c.y), fmaf(a, b.z, c.z), fmaf(a, b.w, c.w));
}

// The sum over the block's rows of one float4 a thread, for the thread's columns, in every thread.
__device__ float4 sum_of_rows(float4 x, float4 (&shared)[kWarps][kLanes]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int distance = kLanes; distance < 32; distance *= 2) {
    x = add4(x, make_float4(__shfl_xor_sync(0xffffffffu, x.x, distance), __shfl_xor_sync(0xffffffffu, x.y, distance),
                            __shfl_xor_sync(0xffffffffu, x.z, distance), __shfl_xor_sync(0xffffffffu, x.w, distance)));
  }
  if (lane < kLanes) {
    shared[warp][lane] = x;
  }
  __syncthreads();
  float4 sum = shared[0][lane % kLanes];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) {
    sum = add4(sum, shared[w][lane % kLanes]);
  }
  return sum;
}

// R: key rows of a thread.
template <class T, int R>
__global__ void __launch_bounds__(kThreads) decode_kernel(Decode<T> p) {
  __shared__ float decay[R * kRows], k[R * kRows], q[R * kRows];
  __shared__ float4 from_k_parts[kWarps][kLanes], o_parts[kWarps][kLanes];
  const int64_t at = blockIdx.x;  // sequence x heads + head
  const int column = static_cast<int>(blockIdx.y) * kSlice + static_cast<int>(threadIdx.x) % kLanes * 4;
  const int first_row = static_cast<int>(threadIdx.x) / kLanes;
  const bool has_column = column < p.value_dim;
  float* state = p.state + at * p.key_dim * p.value_dim + column;
  float4 s[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int row = first_row + r * kRows;
    s[r] = has_column && row < p.key_dim ? load4(state + int64_t{row} * p.value_dim) : make_float4(0, 0, 0, 0);
  }
  for (int c = static_cast<int>(threadIdx.x); c < R * kRows; c += kThreads) {
    const bool has_channel = c < p.key_dim;
    decay[c] = has_channel ? expf(p.g[at * p.key_dim + c]) : 0.0f;
    k[c] = has_channel ? gpu::to_float(p.k[at * p.key_dim + c]) : 0.0f;
    q[c] = has_channel ? p.scale * gpu::to_float(p.q[at * p.key_dim + c]) : 0.0f;
  }
  __syncthreads();
  float4 from_k = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const float alpha = decay[first_row + r * kRows];
    s[r] = make_float4(alpha * s[r].x, alpha * s[r].y, alpha * s[r].z, alpha * s[r].w);
    from_k = multiply_add4(k[first_row + r * kRows], s[r], from_k);
  }
  from_k = sum_of_rows(from_k, from_k_parts);
  const float4 v = has_column ? load4(p.v + at * p.value_dim + column) : make_float4(0, 0, 0, 0);
  const float4 residual = make_float4(v.x - from_k.x, v.y - from_k.y, v.z - from_k.z, v.w - from_k.w);
  const float beta = p.beta[at];
  float4 o = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int row = first_row + r * kRows;
    s[r] = multiply_add4(beta * k[row], residual, s[r]);
    o = multiply_add4(q[row], s[r], o);
    if (has_column && row < p.key_dim) {
      store4(state + int64_t{row} * p.value_dim, s[r]);
    }
  }
  o = sum_of_rows(o, o_parts);
  if (has_column && first_row == 0) {
    store4(p.o + at * p.value_dim + column, o);
  }
}

template <class T, int R>
void launch(ExecContext& ctx, const Decode<T>& p, int64_t states) {
  const dim3 blocks(static_cast<unsigned>(states), static_cast<unsigned>(gpu::ceil_div(p.value_dim, kSlice)));
  decode_kernel<T, R><<<blocks, kThreads, 0, gpu::stream_of(ctx)>>>(p);
  LH_CHECK_LAUNCH(ctx, "kda_decode");
}

}  // namespace
}  // namespace kda_general

void kda_decode(ExecContext& ctx, const KdaDecode& op) {
  using namespace kda_general;
  const int64_t states = op.q.size(0) * op.q.size(1);
  if (states == 0) {
    return;
  }
  gpu::dispatch_compute(op.q.dtype(), "kda_decode", [&](auto zero) {
    using T = decltype(zero);
    const Decode<T> p{.key_dim = static_cast<int>(op.q.size(2)),
                      .value_dim = static_cast<int>(op.v.size(2)), .q = gpu::typed<T>(op.q), .k = gpu::typed<T>(op.k),
                      .v = gpu::typed<T>(op.v), .g = op.g.data<float>(), .beta = op.beta.data<float>(),
                      .scale = static_cast<float>(op.scale), .state = op.state.data<float>(), .o = gpu::typed<T>(op.o)};
    if (p.key_dim <= kRows) {
      launch<T, 1>(ctx, p, states);
    } else if (p.key_dim <= 2 * kRows) {
      launch<T, 2>(ctx, p, states);
    } else if (p.key_dim <= 4 * kRows) {
      launch<T, 4>(ctx, p, states);
    } else {
      launch<T, 8>(ctx, p, states);
    }
  });
}

}  // namespace longhaul::cuda
