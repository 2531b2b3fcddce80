// prepare.cuh for gates without a bound (softplus decay, Kimi Linear, arXiv:2510.26692): the same ChunkImage of a chunk and head.
//
// Tiles below the diagonal are the same dense products, as all their factors are at most 1. On the diagonal no pair of factors
// would be: each key walks from its own row to the later ones of its tile, multiplied by one decay after another, in fp32 on the
// FMA units. There is no reciprocal and no limit; a decay that underflows is 0, and so is what it reaches.
#pragma once

#include "kernels/kda/cuda/pairwise_tiles.cuh"

namespace longhaul::kda::cuda {

// Where prepare keeps decays and inputs of the tiles on the diagonal.
template <int K>
struct PairwiseFactors {
  using S = PairwiseTilesShared<K>;
  static constexpr int kRow = S::kDecayRow;
  static constexpr int kFactors = S::kDecays;                 // fp32 [64, K] e^g; of a tile's first row unused
  static constexpr int kInputs = kFactors + kChunk * kRow;    // bf16 [64, K] pairs of k (low) and q (high)
  static_assert(kInputs + kChunk * kRow <= S::kOperands);
};

// Sums over decay stay small enough for differences, and e^g is 0 from there on anyway.
inline constexpr float kLowestGate = -176.0F;

template <int K>
__device__ __forceinline__ void limit_gates(FetchedTile<K>& tile) {
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    tile.g[r].x = max(tile.g[r].x, kLowestGate);
    tile.g[r].y = max(tile.g[r].y, kLowestGate);
  }
}

template <int K>
__device__ __forceinline__ void write_pairs(const TileShare<K>& share, unsigned char* shared) {
  using P = PairwiseFactors<K>;
  unsigned char* to = shared + share.tile * kTile * P::kRow + share.channel * 4;
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    if (r > 0) {
      *reinterpret_cast<float2*>(to + P::kFactors + r * P::kRow) = make_float2(
          exp2_fast(share.decay[r][0] - share.decay[r - 1][0]), exp2_fast(share.decay[r][1] - share.decay[r - 1][1]));
    }
    const uint32_t low = (share.k[r] & 0xffffU) | (share.q[r] << 16);
    const uint32_t high = (share.k[r] >> 16) | (share.q[r] & 0xffff0000U);
    *reinterpret_cast<uint2*>(to + P::kInputs + r * P::kRow) = uint2{low, high};
  }
}

__device__ __forceinline__ float add_dot(float4 a, float4 b, float sum) {
  return a.w * b.w + (a.z * b.z + (a.y * b.y + (a.x * b.x + sum)));
}

// Eight columns of a tile on the diagonal of L and A, from column kFirst on, by one warp: a lane has one column and every fourth
// group of four channels.
template <int K, int kFirst>
__device__ __forceinline__ void walk_columns(unsigned char* shared, float scale, int tile, int lane) {
  using S = PairwiseTilesShared<K>;
  using P = PairwiseFactors<K>;
  constexpr int rows = kTile - kFirst;
  const int start = lane / 4;  // the lane's column is its row of the same number
  const unsigned char* at = shared + (tile * kTile + kFirst) * P::kRow + lane % 4 * 16;
  float l[rows] = {};
  float a[rows] = {};
#pragma unroll 1
  for (int c = 0; c < K; c += 16) {
    float4 key = make_float4(0.0F, 0.0F, 0.0F, 0.0F);  // of the lane's column, decayed to row i; 0 before that column
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const uint4 x = *reinterpret_cast<const uint4*>(at + P::kInputs + i * P::kRow + c * 4);
      const float4 k = make_float4(bf16_low(x.x), bf16_low(x.y), bf16_low(x.z), bf16_low(x.w));
      const float4 q = make_float4(bf16_high(x.x), bf16_high(x.y), bf16_high(x.z), bf16_high(x.w));
      if (i > 0) {
        const float4 f = *reinterpret_cast<const float4*>(at + P::kFactors + i * P::kRow + c * 4);
        key = make_float4(key.x * f.x, key.y * f.y, key.z * f.z, key.w * f.w);
      }
      if (i < 8) {
        const bool starts = i == start;
        key = make_float4(starts ? k.x : key.x, starts ? k.y : key.y, starts ? k.z : key.z, starts ? k.w : key.w);
      }
      l[i] = add_dot(k, key, l[i]);
      a[i] = add_dot(q, key, a[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < rows; ++i) {
    l[i] += shuffle_xor(l[i], 1);
    a[i] += shuffle_xor(a[i], 1);
    l[i] += shuffle_xor(l[i], 2);
    a[i] += shuffle_xor(a[i], 2);
  }
  if (lane % 4 != 0) {
    return;
  }
  const int column = kFirst + start;
  const auto* beta = reinterpret_cast<const float*>(shared + S::kBeta) + tile * kTile;
  auto* diagonal = reinterpret_cast<float*>(shared + S::kDiagonal) + tile * S::kDiagonalTile;
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const float of_l = i < kFirst ? 0.0F : l[i < kFirst ? 0 : i - kFirst];
    const float of_a = i < kFirst ? 0.0F : a[i < kFirst ? 0 : i - kFirst];
    diagonal[i * S::kDiagonalRow + column] = beta[i] * of_l;
    *reinterpret_cast<uint16_t*>(shared + S::kScores + panel_offset(tile * kTile + i, tile * kTile + column, kChunk)) =
        static_cast<uint16_t>(pack_f16(scale * of_a, 0.0F));
  }
}

template <int K>
__device__ __forceinline__ void pairwise_tiles(unsigned char* shared, float scale, int warp, int lane) {
  const int tile = warp % kTiles;
  const int half = warp / kTiles;
  constexpr bool both = PairwiseTilesShared<K>::kShares == 1;
  if (both || half == 0) {
    walk_columns<K, 0>(shared, scale, tile, lane);
  }
  if (both || half == 1) {
    walk_columns<K, kTile / 2>(shared, scale, tile, lane);
  }
}

// prepare_chunk with the other tiles on the diagonal.
template <int K, class FetchNext>
__device__ __forceinline__ void prepare_chunk_pairwise(const PrepareParams& p, const TileShare<K>& share, float beta,
                                                       unsigned char* image, int thread, FetchNext&& fetch_next) {
  using S = PairwiseTilesShared<K>;
  using I = ChunkImage<K>;
  constexpr int threads = TileThread<K>::kThreads;
  constexpr int warps = threads / 32;
  unsigned char* shared = dynamic_shared();
  const int lane = thread % 32;
  const int warp = thread / 32;
  auto* logs = reinterpret_cast<float*>(shared + S::kLogs);
  *reinterpret_cast<float2*>(logs + share.tile * K + share.channel) = make_float2(share.first[0], share.first[1]);
  *reinterpret_cast<float2*>(logs + (kTiles + share.tile) * K + share.channel) = make_float2(share.total(0), share.total(1));
  if (thread < kChunk) {
    reinterpret_cast<float*>(shared + S::kBeta)[thread] = beta;
    reinterpret_cast<float*>(image + I::kBeta)[thread] = beta;
  }
  sync_block();
  write_decayed_tile<K>(share, p.in, shared, image);
  sync_block();
  for (int unit = warp; unit < 12; unit += warps) {
    lower_unit<K>(shared, p.in.scale, unit, lane);
  }
  sync_block();
  write_pairs<K>(share, shared);
  fetch_next();
  sync_block();
  pairwise_tiles<K>(shared, p.in.scale, warp, lane);
  sync_block();
  if (warp < 2) {
    invert_diagonal<S>(shared, thread / kTile, thread % kTile);
  }
  for (int distance = 1; distance < kTiles; ++distance) {
    sync_block();
    if (warp < kTiles - distance) {
      invert_block<K>(shared, warp + distance, warp, lane);
    }
  }
  sync_block();
  copy_lower<threads>(shared + S::kSolve, image + I::kSolve, thread);
  copy_lower<threads>(shared + S::kScores, image + I::kScores, thread);
}

// A block takes chunk and head `block`, then `block + blocks`, and so on; see prepare_kernel.
template <int K>
__global__ void __launch_bounds__(TileThread<K>::kThreads, K == 128 ? 2 : 3) prepare_pairwise_kernel(const PrepareParams p) {
  int thread = thread_index();
  const int64_t items = static_cast<int64_t>(p.tables.document_chunks[p.documents]) * p.in.heads;
  int64_t item = block_index();
  if (item >= items) {
    return;
  }
  FetchedTile<K> fetched;
  int rows;
  int head;
  float beta = 0.0F;
  const auto fetch = [&] {
    forget(thread);
    const int64_t fetched_item = item < items ? item : items - 1;
    const ChunkEntry chunk = p.tables.chunks[fetched_item / p.in.heads];
    head = static_cast<int>(fetched_item % p.in.heads);
    rows = chunk.rows;
    if (thread < kChunk) {
      beta = thread < rows ? p.in.beta[(chunk.first_token + thread) * p.in.heads + head] : 0.0F;
    }
    fetched.fetch(p.in, chunk, head, TileThread<K>(thread));
  };
  fetch();
  while (item < items) {
    forget(thread);
    unsigned char* image = p.images + item * ChunkImage<K>::kBytes;
    item += grid_blocks();
    limit_gates<K>(fetched);
    const TileShare<K> share(fetched, rows, TileThread<K>(thread));
    prepare_chunk_pairwise<K>(p, share, beta, image, thread, fetch);
  }
}

}  // namespace longhaul::kda::cuda
