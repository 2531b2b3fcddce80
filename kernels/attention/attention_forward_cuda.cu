// The general forward kernel of causal attention: any widths up to 256, arithmetic in fp32 throughout. A block has 64 queries
// of one head and walks over the key tiles up to its own with an online softmax; keys and values share one tile of shared memory.
#include "kernels/attention/attention_tiles.cuh"
#include "kernels/attention/attention_warpgroup.h"

namespace longhaul::cuda {
namespace {

using namespace gpu;
using namespace gpu::attention;

constexpr int kRows = 64;  // of a tile
constexpr int kN = kRows / kSide;

template <class T>
struct Forward {
  Heads<const T> q, k, v;
  Heads<float> o;
  float* lse;  // [tokens, heads]
  Documents documents;
  float scale;
};

// Values of a row lie in the 16 threads of one y.
__device__ inline float row_max(float x) {
#pragma unroll
  for (int distance = kSide / 2; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
  }
  return x;
}
__device__ inline float row_sum(float x) {
#pragma unroll
  for (int distance = kSide / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  return x;
}

// The online softmax of the thread's rows. `s` becomes exp(scaled score - largest).
struct Softmax {
  float largest[kN], sum[kN];

  __device__ Softmax() {
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      largest[i] = -INFINITY;
      sum[i] = 0;
    }
  }
  // Returns in `shrink` what earlier sums of each row are to be multiplied with.
  __device__ void add(float (&s)[kN][kN], float scale, bool is_diagonal, float (&shrink)[kN]) {
    const int y = static_cast<int>(threadIdx.x) / kSide, x = static_cast<int>(threadIdx.x) % kSide;
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      float top = largest[i];
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        s[i][j] = is_diagonal && x + kSide * j > y * kN + i ? -INFINITY : __fmul_rn(s[i][j], scale);
        top = fmaxf(top, s[i][j]);
      }
      top = row_max(top);
      shrink[i] = expf(largest[i] - top);
      largest[i] = top;
      float total = 0;
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        s[i][j] = expf(s[i][j] - top);
        total += s[i][j];
      }
      sum[i] = sum[i] * shrink[i] + row_sum(total);
    }
  }
};

template <class T, int K, int V>
__global__ void __launch_bounds__(kThreads) forward_kernel(Forward<T> p) {
  constexpr int kWider = K > V ? K : V;
  extern __shared__ float4 shared4[];
  float* q = reinterpret_cast<float*>(shared4);  // [64, K]
  float* other = q + kRows * kStride<K>;         // keys, then values
  float* square = other + kRows * kStride<kWider>;
  // The longest first.
  const TilePlace place = find_tile(p.documents, int64_t{gridDim.x} - 1 - blockIdx.x);
  if (place.length == 0) {
    return;
  }
  const int64_t head = blockIdx.y, first = place.document_begin + int64_t{place.index} * kRows;
  const int rows = min(kRows, place.length - place.index * kRows);
  load_tile<kRows, K>(q, p.q, first, head, rows);
  Softmax softmax;
  Share<kRows, V> o;
  for (int tile = 0; tile <= place.index; ++tile) {
    const int64_t key = place.document_begin + int64_t{tile} * kRows;
    const int keys = min(kRows, place.length - tile * kRows);
    __syncthreads();
    load_tile<kRows, K>(other, p.k, key, head, keys);
    __syncthreads();
    float s[kN][kN], shrink[kN];
    scores<kN, K>(q, other, p.q.columns, s);
    softmax.add(s, p.scale, tile == place.index, shrink);
    store_square<kRows>(square, s);
#pragma unroll
    for (int i = 0; i < kN; ++i) {
#pragma unroll
      for (int g = 0; g < Share<kRows, V>::kGroups; ++g) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          o.values[i][g][j] *= shrink[i];
        }
      }
    }
    __syncthreads();
    load_tile<kRows, V>(other, p.v, key, head, keys);
    __syncthreads();
    o.add_product(square, other);
  }
  float factor[kN];
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    factor[i] = 1.0f / softmax.sum[i];
    const int r = static_cast<int>(threadIdx.x) / kSide * kN + i;
    if (r < rows && threadIdx.x % kSide == 0) {
      p.lse[(first + r) * gridDim.y + head] = softmax.largest[i] + logf(softmax.sum[i]);
    }
  }
  o.write(p.o, first, head, rows, factor);
}

}  // namespace

void attention_forward(ExecContext& ctx, const AttentionForward& op, const AttentionScratch& scratch) {
  const int64_t tokens = op.q.size(0), heads = op.q.size(1);
  if (op.o.numel() == 0 || op.q.numel() == 0) {
    return;
  }
  if (fits_warpgroup(ctx, op)) {
    attention_forward_warpgroup(ctx, op, scratch.tile_starts);
    return;
  }
  const Documents documents = documents_of(op.cu_seqlens, scratch.tile_starts, tokens);
  start_tiles(ctx, op.cu_seqlens, scratch.tile_starts, kRows);
  dispatch_compute(op.q.dtype(), "attention_forward", [&](auto zero) {
    using T = decltype(zero);
    const Forward<T> p{.q = Heads<const T>(op.q),
                       .k = Heads<const T>(op.k),
                       .v = Heads<const T>(op.v),
                       .o = Heads<float>(op.o),
                       .lse = op.lse.data<float>(),
                       .documents = documents,
                       .scale = static_cast<float>(op.scale)};
    with_columns(op.q.size(2), [&](auto k) {
      with_columns(op.v.size(2), [&](auto v) {
        constexpr int K = k(), V = v();
        constexpr int64_t kBytes = 4 * kRows * (kStride<K> + kStride<(K > V ? K : V)> + kSquareStride<kRows>);
        allow_shared(forward_kernel<T, K, V>, kBytes);
        forward_kernel<T, K, V><<<dim3(most_tiles(documents, kRows), static_cast<unsigned>(heads)), kThreads, kBytes, stream_of(ctx)>>>(p);
      });
    });
  });
  LH_CHECK_LAUNCH(ctx, "attention_forward");
}

}  // namespace longhaul::cuda
