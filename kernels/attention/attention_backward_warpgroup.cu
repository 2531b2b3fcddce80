// Backward of causal attention on Hopper's tensor cores, after attention_backward_cuda.cu: the scores are computed again by query
// tiles for dq and by key tiles for dk and dv. A block has 128 rows of one head, 64 for each warpgroup, and walks over tiles of
// 64; the next tile is copied while one is computed. Sums are fp32; P and dS are rounded to bf16 for the products that they enter.
#include "kernels/attention/attention_warpgroup.cuh"
#include "kernels/attention/attention_warpgroup.h"

namespace longhaul::cuda {
namespace {

using namespace gpu;
using namespace gpu::attention;

constexpr int kStepRows = 64;  // of the tiles that a block walks over

struct Backward {
  Heads<const BF16> q, k, v, d_o;
  Heads<BF16> dq, dk, dv;
  const float *lse, *delta;  // [tokens, heads]
  Documents documents;
  BlockOrder order;
  float scale;
};

// dS = P (dP - delta) in place of dp, for 64 queries by 64 keys. `row` and 8 below are the thread's queries.
[[maybe_unused]] __device__ __forceinline__ void score_gradients(const float (&s)[32], float (&dp)[32], const Lane& lane,
                                                                 bool is_diagonal, float scale, const float (&lse)[2],
                                                                 const float (&delta)[2]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float weight = exp2_fast(fmaf(s[4 * j + i], scale, -lse[i / 2]));
      const bool is_hidden = is_diagonal && 8 * j + lane.column + i % 2 > lane.row + i / 2 * 8;
      dp[4 * j + i] = is_hidden ? 0.0f : weight * (dp[4 * j + i] - delta[i / 2]);
    }
  }
}

template <int K, int V>
__global__ void __launch_bounds__(kThreads, 1) query_kernel(const __grid_constant__ Backward p) {
#if LH_WARPGROUP_KERNELS
  extern __shared__ __align__(1024) unsigned char memory[];
  using Queries = SwizzledTile<kBlockRows, K>;
  using Gradients = SwizzledTile<kBlockRows, V>;
  using Keys = SwizzledTile<kStepRows, K>;
  using Values = SwizzledTile<kStepRows, V>;
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  const Queries q{base};
  const Gradients d_o{base + Queries::kBytes};
  const uint32_t steps = base + Queries::kBytes + Gradients::kBytes;
  const auto k = [&](int tile) { return Keys{steps + Keys::kBytes * (tile % 2)}; };
  const auto v = [&](int tile) { return Values{steps + 2 * Keys::kBytes + Values::kBytes * (tile % 2)}; };
  const auto [turn, head] = p.order.place(blockIdx.x);
  const TilePlace place = find_tile(p.documents, p.order.tiles - 1 - turn);
  if (place.length == 0) {
    return;
  }
  const int64_t heads = p.order.heads, begin = place.document_begin, first = begin + int64_t{place.index} * kBlockRows;
  const int rows = place.length - place.index * kBlockRows;
  const int tiles = 2 * place.index + (rows > kGroupRows ? 2 : 1);
  q.copy(p.q, first, head, rows);
  d_o.copy(p.d_o, first, head, rows);
  k(0).copy(p.k, begin, head, place.length);
  v(0).copy(p.v, begin, head, place.length);
  commit_copies();
  const Lane lane;
  const float scale = p.scale * kLog2E;
  float lse[2] = {}, delta[2] = {}, dq[K / 64][32] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane.group * kGroupRows + lane.row + 8 * half;
    if (row < rows) {
      lse[half] = p.lse[(first + row) * heads + head] * kLog2E;
      delta[half] = p.delta[(first + row) * heads + head];
    }
  }
  const int diagonal = 2 * place.index + lane.group;  // the tile of the warpgroup's own positions
  for (int tile = 0; tile < tiles; ++tile) {
    finish_copies();
    if (tile + 1 < tiles) {
      const int next = (tile + 1) * kStepRows;
      k(tile + 1).copy(p.k, begin + next, head, place.length - next);
      v(tile + 1).copy(p.v, begin + next, head, place.length - next);
      commit_copies();
    }
    if (tile > diagonal) {
      continue;
    }
    float s[32], dp[32];
    begin_products();
#pragma unroll
    for (int c = 0; c < K; c += 16) {
      multiply<Along::K, Along::K>(s, q.at(lane.group * kGroupRows, c), k(tile).at(0, c), c > 0);
    }
#pragma unroll
    for (int c = 0; c < V; c += 16) {
      multiply<Along::K, Along::K>(dp, d_o.at(lane.group * kGroupRows, c), v(tile).at(0, c), c > 0);
    }
    finish_products();
    hold(s);
    hold(dp);
    score_gradients(s, dp, lane, tile == diagonal, scale, lse, delta);
    uint32_t ds[kStepRows / 16][4];
#pragma unroll
    for (int c = 0; c < kStepRows / 16; ++c) {
      left_operand(dp, c, ds[c]);
    }
    hold(dq);
    begin_products();
#pragma unroll
    for (int c = 0; c < kStepRows / 16; ++c) {
#pragma unroll
      for (int m = 0; m < K / 64; ++m) {
        add_product(dq[m], ds[c], k(tile).at(16 * c, 64 * m));
      }
    }
    finish_products();
    hold(dq);
  }
  const float factor[2] = {p.scale, p.scale};
  write_rows(dq, p.dq, first, head, rows, lane, factor);
#endif
}

// Starts copying a number for each row of a tile to shared memory, from [tokens, heads]; 0 where there is no row.
[[maybe_unused]] __device__ __forceinline__ void copy_numbers(uint32_t to, const float* from, int64_t first, int64_t head, int64_t heads,
                                                              int rows, int row) {
  const bool exists = row < rows;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to + static_cast<uint32_t>(row * 4)),
               "l"(exists ? from + (first + row) * heads + head : from), "r"(exists ? 4 : 0)
               : "memory");
}

// P and dS of 64 keys by 32 queries, transposed, in place of s and dp. `lse` and `delta` are of the 32 queries; a thread's two keys
// are `key` and 8 below it, counted from the first of the queries.
[[maybe_unused]] __device__ __forceinline__ void transposed_gradients(float (&s)[16], float (&dp)[16], const Lane& lane,
                                                                      bool is_diagonal, int key, float scale, const float* lse,
                                                                      const float* delta) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 l = *reinterpret_cast<const float2*>(lse + 8 * j + lane.column);
    const float2 d = *reinterpret_cast<const float2*>(delta + 8 * j + lane.column);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float weight = exp2_fast(fmaf(s[4 * j + i], scale, -(i % 2 == 0 ? l.x : l.y) * kLog2E));
      const bool is_hidden = is_diagonal && key + i / 2 * 8 > 8 * j + lane.column + i % 2;
      s[4 * j + i] = is_hidden ? 0.0f : weight;
      dp[4 * j + i] = is_hidden ? 0.0f : weight * (dp[4 * j + i] - (i % 2 == 0 ? d.x : d.y));
    }
  }
}

template <int K, int V>
__global__ void __launch_bounds__(kThreads, 1) key_kernel(const __grid_constant__ Backward p) {
#if LH_WARPGROUP_KERNELS
  extern __shared__ __align__(1024) unsigned char memory[];
  using Keys = SwizzledTile<kBlockRows, K>;
  using Values = SwizzledTile<kBlockRows, V>;
  using Queries = SwizzledTile<kStepRows, K>;
  using Gradients = SwizzledTile<kStepRows, V>;
  constexpr int kHalf = kStepRows / 2;
  constexpr int kNumbers = Keys::kBytes + Values::kBytes + 2 * (Queries::kBytes + Gradients::kBytes);  // lse, delta; twice
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  const Keys k{base};
  const Values v{base + Keys::kBytes};
  const uint32_t steps = base + Keys::kBytes + Values::kBytes;
  const auto q = [&](int tile) { return Queries{steps + Queries::kBytes * (tile % 2)}; };
  const auto d_o = [&](int tile) { return Gradients{steps + 2 * Queries::kBytes + Gradients::kBytes * (tile % 2)}; };
  const auto [turn, head] = p.order.place(blockIdx.x);
  const TilePlace place = find_tile(p.documents, turn);
  if (place.length == 0) {
    return;
  }
  const int64_t heads = p.order.heads, begin = place.document_begin, first = begin + int64_t{place.index} * kBlockRows;
  const int keys = place.length - place.index * kBlockRows;
  const auto copy_queries = [&, head = head](int tile) {
    const int at = tile * kStepRows, row = static_cast<int>(threadIdx.x) % kStepRows;
    q(tile).copy(p.q, begin + at, head, place.length - at);
    d_o(tile).copy(p.d_o, begin + at, head, place.length - at);
    if (threadIdx.x < 2 * kStepRows) {
      const bool is_lse = threadIdx.x < kStepRows;
      copy_numbers(base + kNumbers + static_cast<uint32_t>((tile % 2 * 2 + (is_lse ? 0 : 1)) * kStepRows * 4), is_lse ? p.lse : p.delta,
                   begin + at, head, heads, place.length - at, row);
    }
    commit_copies();
  };
  k.copy(p.k, first, head, keys);
  v.copy(p.v, first, head, keys);
  copy_queries(2 * place.index);
  const Lane lane;
  const float scale = p.scale * kLog2E;
  const int diagonal = 2 * place.index + lane.group, tiles = (place.length + kStepRows - 1) / kStepRows;
  float dk[K / 64][32] = {}, dv[V / 64][32] = {};
  for (int tile = 2 * place.index; tile < tiles; ++tile) {
    finish_copies();
    if (tile + 1 < tiles) {
      copy_queries(tile + 1);
    }
    if (tile < diagonal) {
      continue;
    }
    const float* lse = reinterpret_cast<const float*>(memory + kNumbers) + tile % 2 * 2 * kStepRows;
#pragma unroll 1
    for (int half = 0; half < kStepRows; half += kHalf) {
      float s[16], dp[16];
      begin_products();
#pragma unroll
      for (int c = 0; c < K; c += 16) {
        multiply<Along::K, Along::K>(s, k.at(lane.group * kGroupRows, c), q(tile).at(half, c), c > 0);
      }
#pragma unroll
      for (int c = 0; c < V; c += 16) {
        multiply<Along::K, Along::K>(dp, v.at(lane.group * kGroupRows, c), d_o(tile).at(half, c), c > 0);
      }
      finish_products();
      hold(s);
      hold(dp);
      transposed_gradients(s, dp, lane, tile == diagonal, lane.row - half, scale, lse + half, lse + kStepRows + half);
      uint32_t weights[2][4], ds[2][4];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        left_operand(s, c, weights[c]);
        left_operand(dp, c, ds[c]);
      }
      hold(dk);
      hold(dv);
      begin_products();
#pragma unroll
      for (int c = 0; c < 2; ++c) {
#pragma unroll
        for (int m = 0; m < V / 64; ++m) {
          add_product(dv[m], weights[c], d_o(tile).at(half + 16 * c, 64 * m));
        }
#pragma unroll
        for (int m = 0; m < K / 64; ++m) {
          add_product(dk[m], ds[c], q(tile).at(half + 16 * c, 64 * m));
        }
      }
      finish_products();
      hold(dk);
      hold(dv);
    }
  }
  const float factor[2] = {p.scale, p.scale}, one[2] = {1, 1};
  write_rows(dk, p.dk, first, head, keys, lane, factor);
  write_rows(dv, p.dv, first, head, keys, lane, one);
#endif
}

template <int K, int V>
void launch(ExecContext& ctx, const Backward& p) {
  constexpr int64_t kWide = SwizzledTile<kBlockRows, K>::kBytes + SwizzledTile<kBlockRows, V>::kBytes;
  constexpr int64_t kSteps = 2 * (SwizzledTile<kStepRows, K>::kBytes + SwizzledTile<kStepRows, V>::kBytes);
  allow_shared(query_kernel<K, V>, kWide + kSteps);
  query_kernel<K, V><<<p.order.blocks(), kThreads, kWide + kSteps, stream_of(ctx)>>>(p);
  LH_CHECK_LAUNCH(ctx, "attention_backward for dq");
  constexpr int64_t kNumbers = 4 * kStepRows * 4;
  allow_shared(key_kernel<K, V>, kWide + kSteps + kNumbers);
  key_kernel<K, V><<<p.order.blocks(), kThreads, kWide + kSteps + kNumbers, stream_of(ctx)>>>(p);
  LH_CHECK_LAUNCH(ctx, "attention_backward for dk and dv");
}

}  // namespace

void attention_backward_warpgroup(ExecContext& ctx, const AttentionBackward& op, const TensorView& d_o, const AttentionScratch& scratch) {
  const Documents documents = documents_of(op.cu_seqlens, scratch.tile_starts, op.q.size(0));
  const Backward p{.q = Heads<const BF16>(op.q),
                   .k = Heads<const BF16>(op.k),
                   .v = Heads<const BF16>(op.v),
                   .d_o = Heads<const BF16>(d_o),
                   .dq = Heads<BF16>(op.dq),
                   .dk = Heads<BF16>(op.dk),
                   .dv = Heads<BF16>(op.dv),
                   .lse = op.lse.data<float>(),
                   .delta = scratch.delta.data<float>(),
                   .documents = documents,
                   .order = {most_tiles(documents, kBlockRows), op.q.size(1)},
                   .scale = static_cast<float>(op.scale)};
  start_tiles(ctx, op.cu_seqlens, scratch.tile_starts, kBlockRows);
  with_tile_columns(op.q.size(2), op.v.size(2), [&](auto k, auto v) { launch<k(), v()>(ctx, p); });
}

}  // namespace longhaul::cuda
