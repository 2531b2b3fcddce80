// The general backward kernels of causal attention: any widths up to 256, arithmetic in fp32 throughout. The scores are computed
// again, once by query tiles for dq and once by key tiles for dk and dv, so that every sum has one owner and a fixed order.
//
//   P = exp(scale S - lse)   dS = P (dP - delta)   dP = dO V^T   dV = P^T dO   dQ = scale dS K   dK = scale dS^T Q
#include "kernels/attention/attention_tiles.cuh"
#include "kernels/attention/attention_warpgroup.h"

namespace longhaul::cuda {
namespace {

using namespace gpu;
using namespace gpu::attention;

template <class T, class G>
struct Backward {
  Heads<const T> q, k, v;
  Heads<const G> d_o;
  Heads<T> dq, dk, dv;
  const float *lse, *delta;  // [tokens, heads]
  Documents documents;
  float scale;
};

// delta[row] = <d_o[row], o[row]>, a warp a row. With `rounded`, d_o is rounded to bf16 first and kept there.
template <class G>
__global__ void __launch_bounds__(kThreads) delta_kernel(const G* d_o, const float* o, float* delta, BF16* rounded, int64_t rows,
                                                         int64_t dim) {
  const int64_t row = int64_t{blockIdx.x} * Group<32>::kGroups + Group<32>::index();
  if (row >= rows) {
    return;
  }
  float sum = 0;
  for (int64_t c = Group<32>::thread(); c < dim; c += 32) {
    float gradient = to_float(d_o[row * dim + c]);
    if (rounded != nullptr) {
      const BF16 kept = from_float<BF16>(gradient);
      rounded[row * dim + c] = kept;
      gradient = to_float(kept);
    }
    sum += gradient * o[row * dim + c];
  }
  sum = warp_sum(sum);
  if (Group<32>::thread() == 0) {
    delta[row] = sum;
  }
}

template <class G>
void start_delta(ExecContext& ctx, const AttentionBackward& op, const TensorView& delta, BF16* rounded) {
  const int64_t rows = delta.numel();
  delta_kernel<G><<<blocks_for_rows(rows, 32), kThreads, 0, stream_of(ctx)>>>(typed<G>(op.d_o), op.o.data<float>(), delta.data<float>(),
                                                                             rounded, rows, op.v.size(2));
  LH_CHECK_LAUNCH(ctx, "attention_backward for delta");
}

// With d_o in bf16, as it came or rounded: dP and delta then speak of the same d_o, and the rows of dS sum to 0.
void backward_warpgroup(ExecContext& ctx, const AttentionBackward& op, const AttentionScratch& scratch) {
  if (op.d_o.dtype() == DType::BF16) {
    start_delta<BF16>(ctx, op, scratch.delta, nullptr);
    attention_backward_warpgroup(ctx, op, op.d_o, scratch);
    return;
  }
  start_delta<float>(ctx, op, scratch.delta, typed<BF16>(scratch.rounded_d_o));
  attention_backward_warpgroup(ctx, op, scratch.rounded_d_o, scratch);
}

// Tiles of 32 rows where four wide ones would not fit into shared memory.
template <int D>
inline constexpr int kTileRows = D <= 128 ? 64 : 32;

template <class T, class G, int D>
__global__ void __launch_bounds__(kThreads) query_kernel(Backward<T, G> p) {
  constexpr int R = kTileRows<D>, kN = R / kSide;
  extern __shared__ float4 shared4[];
  float* q = reinterpret_cast<float*>(shared4);
  float* d_o = q + R * kStride<D>;
  float* other = d_o + R * kStride<D>;  // values, then keys
  float* square = other + R * kStride<D>;
  const TilePlace place = find_tile(p.documents, int64_t{gridDim.x} - 1 - blockIdx.x);
  if (place.length == 0) {
    return;
  }
  const int y = static_cast<int>(threadIdx.x) / kSide, x = static_cast<int>(threadIdx.x) % kSide;
  const int64_t head = blockIdx.y, heads = gridDim.y, first = place.document_begin + int64_t{place.index} * R;
  const int rows = min(R, place.length - place.index * R);
  load_tile<R, D>(q, p.q, first, head, rows);
  load_tile<R, D>(d_o, p.d_o, first, head, rows);
  float lse[kN], delta[kN], factor[kN];
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    const int r = y * kN + i;
    lse[i] = r < rows ? p.lse[(first + r) * heads + head] : 0;
    delta[i] = r < rows ? p.delta[(first + r) * heads + head] : 0;
    factor[i] = p.scale;
  }
  Share<R, D> dq;
  for (int tile = 0; tile <= place.index; ++tile) {
    const int64_t key = place.document_begin + int64_t{tile} * R;
    const int keys = min(R, place.length - tile * R);
    float s[kN][kN], dp[kN][kN];
    __syncthreads();
    load_tile<R, D>(other, p.v, key, head, keys);
    __syncthreads();
    scores<kN, D>(d_o, other, p.v.columns, dp);
    __syncthreads();
    load_tile<R, D>(other, p.k, key, head, keys);
    __syncthreads();
    scores<kN, D>(q, other, p.k.columns, s);
#pragma unroll
    for (int i = 0; i < kN; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const bool is_seen = tile < place.index || (x + kSide * j <= y * kN + i && y * kN + i < rows);
        s[i][j] = is_seen ? expf(__fmul_rn(s[i][j], p.scale) - lse[i]) * (dp[i][j] - delta[i]) : 0;
      }
    }
    store_square<R>(square, s);
    __syncthreads();
    dq.add_product(square, other);
  }
  dq.write(p.dq, first, head, rows, factor);
}

// Scores are transposed here, [keys, queries].
template <class T, class G, int D>
__global__ void __launch_bounds__(kThreads) key_kernel(Backward<T, G> p) {
  constexpr int R = kTileRows<D>, kN = R / kSide;
  extern __shared__ float4 shared4[];
  float* k = reinterpret_cast<float*>(shared4);
  float* v = k + R * kStride<D>;
  float* q = v + R * kStride<D>;
  float* d_o = q + R * kStride<D>;
  float* square = d_o + R * kStride<D>;
  // The first tiles of a document meet the most queries, and blocks start in this order.
  const TilePlace place = find_tile(p.documents, blockIdx.x);
  if (place.length == 0) {
    return;
  }
  const int y = static_cast<int>(threadIdx.x) / kSide, x = static_cast<int>(threadIdx.x) % kSide;
  const int64_t head = blockIdx.y, heads = gridDim.y, first = place.document_begin + int64_t{place.index} * R;
  const int keys = min(R, place.length - place.index * R);
  load_tile<R, D>(k, p.k, first, head, keys);
  load_tile<R, D>(v, p.v, first, head, keys);
  Share<R, D> dk, dv;
  for (int tile = place.index; tile * R < place.length; ++tile) {
    const int64_t query = place.document_begin + int64_t{tile} * R;
    const int rows = min(R, place.length - tile * R);
    float s[kN][kN], dp[kN][kN];
    __syncthreads();
    load_tile<R, D>(q, p.q, query, head, rows);
    load_tile<R, D>(d_o, p.d_o, query, head, rows);
    __syncthreads();
    scores<kN, D>(k, q, p.k.columns, s);
    scores<kN, D>(v, d_o, p.v.columns, dp);
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      const int r = x + kSide * j;
      const float lse = r < rows ? p.lse[(query + r) * heads + head] : 0;
      const float delta = r < rows ? p.delta[(query + r) * heads + head] : 0;
#pragma unroll
      for (int i = 0; i < kN; ++i) {
        const bool is_seen = r < rows && (tile > place.index || y * kN + i <= r);
        s[i][j] = is_seen ? expf(__fmul_rn(s[i][j], p.scale) - lse) : 0;
        dp[i][j] = is_seen ? s[i][j] * (dp[i][j] - delta) : 0;
      }
    }
    store_square<R>(square, s);
    __syncthreads();
    dv.add_product(square, d_o);
    __syncthreads();
    store_square<R>(square, dp);
    __syncthreads();
    dk.add_product(square, q);
  }
  float scale[kN], one[kN];
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    scale[i] = p.scale;
    one[i] = 1;
  }
  dk.write(p.dk, first, head, keys, scale);
  dv.write(p.dv, first, head, keys, one);
}

template <class T, class G, int D>
void launch(ExecContext& ctx, const Backward<T, G>& p, unsigned heads, const AttentionBackward& op, const TensorView& tile_starts) {
  constexpr int R = kTileRows<D>;
  constexpr int64_t kTile = 4 * R * kStride<D>, kSquare = 4 * R * kSquareStride<R>;
  const dim3 grid(most_tiles(p.documents, R), heads);
  start_tiles(ctx, op.cu_seqlens, tile_starts, R);
  allow_shared(query_kernel<T, G, D>, 3 * kTile + kSquare);
  query_kernel<T, G, D><<<grid, kThreads, 3 * kTile + kSquare, stream_of(ctx)>>>(p);
  LH_CHECK_LAUNCH(ctx, "attention_backward for dq");
  allow_shared(key_kernel<T, G, D>, 4 * kTile + kSquare);
  key_kernel<T, G, D><<<grid, kThreads, 4 * kTile + kSquare, stream_of(ctx)>>>(p);
  LH_CHECK_LAUNCH(ctx, "attention_backward for dk and dv");
}

}  // namespace

void attention_backward(ExecContext& ctx, const AttentionBackward& op, const AttentionScratch& scratch) {
  const int64_t tokens = op.q.size(0), heads = op.q.size(1);
  if (tokens * heads == 0) {
    return;
  }
  if (fits_warpgroup(ctx, op)) {
    backward_warpgroup(ctx, op, scratch);
    return;
  }
  const Documents documents = documents_of(op.cu_seqlens, scratch.tile_starts, tokens);
  dispatch_compute(op.q.dtype(), op.d_o.dtype(), "attention_backward", [&](auto zero, auto gradient) {
    using T = decltype(zero);
    using G = decltype(gradient);
    if constexpr (std::is_same_v<T, float> && !std::is_same_v<G, float>) {
      return;  // refused by the caller
    } else {
      start_delta<G>(ctx, op, scratch.delta, nullptr);
      const Backward<T, G> p{.q = Heads<const T>(op.q),
                             .k = Heads<const T>(op.k),
                             .v = Heads<const T>(op.v),
                             .d_o = Heads<const G>(op.d_o),
                             .dq = Heads<T>(op.dq),
                             .dk = Heads<T>(op.dk),
                             .dv = Heads<T>(op.dv),
                             .lse = op.lse.data<float>(),
                             .delta = scratch.delta.data<float>(),
                             .documents = documents,
                             .scale = static_cast<float>(op.scale)};
      with_columns(std::max(op.q.size(2), op.v.size(2)),
                   [&](auto d) { launch<T, G, d()>(ctx, p, static_cast<unsigned>(heads), op, scratch.tile_starts); });
    }
  });
}

}  // namespace longhaul::cuda
