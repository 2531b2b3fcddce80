// Forward of causal attention on Hopper's tensor cores. A block has 128 queries of one head, 64 for each warpgroup, and walks over
// key tiles of 128 with an online softmax; the next tile is copied while one is computed. Sums and the output are fp32; what is
// rounded to bf16 is P, for its product with V.
#include "kernels/attention/attention_warpgroup.cuh"
#include "kernels/attention/attention_warpgroup.h"

namespace longhaul::cuda {
namespace {

using namespace gpu;
using namespace gpu::attention;

struct Forward {
  Heads<const BF16> q, k, v;
  Heads<float> o;
  float* lse;  // [tokens, heads]
  Documents documents;
  BlockOrder order;
  float scale;  // times log2(e)
};

// One row of the online softmax in units of log2; the four threads of a row hold parts of the sum.
struct RowSoftmax {
  float largest = -INFINITY, sum = 0;

  // Values 4 j + at, 4 j + at + 1 of `s` are the row's; they become P. Returns the factor for earlier sums.
  template <int N>
  __device__ __forceinline__ float add(float (&s)[N], int at, float scale) {
    float top = -INFINITY;
#pragma unroll
    for (int j = at; j < N; j += 4) {
      top = fmaxf(top, fmaxf(s[j], s[j + 1]));
    }
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    top = fmaxf(largest, top * scale);
    const float shrink = exp2_fast(largest - top);
    largest = top;
    float total = 0;
#pragma unroll
    for (int j = at; j < N; j += 4) {
      s[j] = exp2_fast(fmaf(s[j], scale, -top));
      s[j + 1] = exp2_fast(fmaf(s[j + 1], scale, -top));
      total += s[j] + s[j + 1];
    }
    sum = sum * shrink + total;
    return shrink;
  }
};

// The sum over the four threads of a row.
[[maybe_unused]] __device__ __forceinline__ float row_sum(float part) {
  part += __shfl_xor_sync(0xffffffffu, part, 1);
  return part + __shfl_xor_sync(0xffffffffu, part, 2);
}

// The second warpgroup starts a tile when the first has its scores, so that one is on the tensor cores while the other works on its
// softmax: 4% here; the backward kernels lost by it. Each warpgroup calls both once a tile, before its scores and after them.
[[maybe_unused]] __device__ __forceinline__ void take_turn(const Lane& lane) {
  if (lane.group == 1) {
    asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
  }
}
[[maybe_unused]] __device__ __forceinline__ void pass_turn(const Lane& lane) {
  if (lane.group == 0) {
    asm volatile("bar.arrive 1, %0;" ::"n"(kThreads) : "memory");
  }
}

template <int K, int V>
__device__ __forceinline__ void forward_tile(const SwizzledTile<kBlockRows, K>& q, const SwizzledTile<kBlockRows, K>& k,
                                             const SwizzledTile<kBlockRows, V>& v, bool is_diagonal, float scale, const Lane& lane,
                                             RowSoftmax (&softmax)[2], float (&o)[V / 64][32]) {
  float s[kBlockRows / 2];
  take_turn(lane);
  begin_products();
#pragma unroll
  for (int c = 0; c < K; c += 16) {
    multiply<Along::K, Along::K>(s, q.at(lane.group * kGroupRows, c), k.at(0, c), c > 0);
  }
  finish_products();
  hold(s);
  pass_turn(lane);
  if (is_diagonal) {
    const int row = lane.group * kGroupRows + lane.row;
#pragma unroll
    for (int j = 0; j < kBlockRows / 8; ++j) {
      const int column = 8 * j + lane.column;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[4 * j + i] = column + i % 2 > row + i / 2 * 8 ? -INFINITY : s[4 * j + i];
      }
    }
  }
  const float shrink[2] = {softmax[0].add(s, 0, scale), softmax[1].add(s, 2, scale)};
#pragma unroll
  for (int m = 0; m < V / 64; ++m) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      o[m][i] *= shrink[i / 2 % 2];
    }
  }
  uint32_t p[kBlockRows / 16][4];
#pragma unroll
  for (int c = 0; c < kBlockRows / 16; ++c) {
    left_operand(s, c, p[c]);
  }
  hold(o);
  begin_products();
#pragma unroll
  for (int c = 0; c < kBlockRows / 16; ++c) {
#pragma unroll
    for (int m = 0; m < V / 64; ++m) {
      add_product(o[m], p[c], v.at(16 * c, 64 * m));
    }
  }
  finish_products();
  hold(o);
}

template <int K, int V>
__global__ void __launch_bounds__(kThreads, 1) forward_kernel(const __grid_constant__ Forward p) {
#if LH_WARPGROUP_KERNELS
  extern __shared__ __align__(1024) unsigned char memory[];
  using Keys = SwizzledTile<kBlockRows, K>;
  using Values = SwizzledTile<kBlockRows, V>;
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  const Keys q{base};
  const auto k = [&](int tile) { return Keys{base + Keys::kBytes * (1 + tile % 2)}; };
  const auto v = [&](int tile) { return Values{base + 3 * Keys::kBytes + Values::kBytes * (tile % 2)}; };
  const auto [turn, head] = p.order.place(blockIdx.x);
  const TilePlace place = find_tile(p.documents, p.order.tiles - 1 - turn);
  if (place.length == 0) {
    return;
  }
  const int64_t begin = place.document_begin, first = begin + int64_t{place.index} * kBlockRows;
  const int rows = place.length - place.index * kBlockRows;
  q.copy(p.q, first, head, rows);
  k(0).copy(p.k, begin, head, place.length);
  v(0).copy(p.v, begin, head, place.length);
  commit_copies();
  const Lane lane;
  RowSoftmax softmax[2];
  float o[V / 64][32] = {};
  for (int tile = 0; tile <= place.index; ++tile) {
    finish_copies();
    if (tile < place.index) {
      const int next = (tile + 1) * kBlockRows;
      k(tile + 1).copy(p.k, begin + next, head, place.length - next);
      v(tile + 1).copy(p.v, begin + next, head, place.length - next);
      commit_copies();
    }
    forward_tile<K, V>(q, k(tile), v(tile), tile == place.index, p.scale, lane, softmax, o);
  }
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = row_sum(softmax[half].sum);
    const int row = lane.group * kGroupRows + lane.row + 8 * half;
    factor[half] = 1.0f / sum;
    if (row < rows && lane.column == 0) {
      p.lse[(first + row) * p.order.heads + head] = softmax[half].largest / kLog2E + logf(sum);
    }
  }
  write_rows(o, p.o, first, head, rows, lane, factor);
#endif
}

}  // namespace

void attention_forward_warpgroup(ExecContext& ctx, const AttentionForward& op, const TensorView& tile_starts) {
  const Documents documents = documents_of(op.cu_seqlens, tile_starts, op.q.size(0));
  const Forward p{.q = Heads<const BF16>(op.q),
                  .k = Heads<const BF16>(op.k),
                  .v = Heads<const BF16>(op.v),
                  .o = Heads<float>(op.o),
                  .lse = op.lse.data<float>(),
                  .documents = documents,
                  .order = {most_tiles(documents, kBlockRows), op.q.size(1)},
                  .scale = static_cast<float>(op.scale) * kLog2E};
  start_tiles(ctx, op.cu_seqlens, tile_starts, kBlockRows);
  with_tile_columns(op.q.size(2), op.v.size(2), [&](auto k, auto v) {
    constexpr int K = k(), V = v();
    constexpr int64_t kBytes = 3 * SwizzledTile<kBlockRows, K>::kBytes + 2 * SwizzledTile<kBlockRows, V>::kBytes;
    allow_shared(forward_kernel<K, V>, kBytes);
    forward_kernel<K, V><<<p.order.blocks(), kThreads, kBytes, stream_of(ctx)>>>(p);
  });
  LH_CHECK_LAUNCH(ctx, "attention_forward");
}

}  // namespace longhaul::cuda
