// Score matrices of the kernel that prepares chunks (prepare.cuh), and the decayed keys and queries they are formed from.
//
// Row tile I against column tile J with the decay split at the start of tile I:  E_ij = 2^{C_i} * (tiles between) * 2^{T_J - C_j},
// C = sum inside the tile up to and with the row, T = the whole tile's. Off the diagonal all factors are at most 1 and fp16
// serves. On it the split is at the start of the tile, 2^{C_i} 2^{-C_j}: at the bound g >= -5 the second reaches 2^115, which needs
// the range of tf32. A warp's operands there are its own part, in registers.
#pragma once

#include "kernels/kda/cuda/prepare_layout.cuh"

namespace longhaul::kda::cuda {

// The part's keys and queries decayed inside their tile, fp16 pairs: q 2^C, k 2^C, k 2^{T - C}; by fragments.
struct Decayed {
  uint32_t queries[kFragments][4];
  uint32_t keys[kFragments][4];
  uint32_t leaving[kFragments][4];
};

// The part's share of a diagonal tile of L and A, not scaled: registers as block_row and block_column say.
struct DiagonalSums {
  float l[8] = {};
  float a[8] = {};
};

// Decays fragment b and adds its products to the diagonal tile.
template <int K, Inputs kInputs>
__device__ __forceinline__ void decay_fragment(Decayed& to, DiagonalSums& sums, const float (&c)[8], const float (&q_norm)[2],
                                               const float (&k_norm)[2], const unsigned char* shared, uint32_t base,
                                               const Part<K>& part, int b) {
  using S = PrepareShared<K>;
  const uint32_t at = part.fragment(base + part.offset(), b);
  uint32_t q[4];
  uint32_t k[4];
  ldmatrix(q, at + S::kQueries);
  ldmatrix(k, at + S::kKeys);
  const unsigned char* totals = shared + S::kTotals + (part.tile() * K + part.channel(b)) * 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float2 total = read_float2(totals + 8 * h * 4);
    uint32_t queries[4];
    uint32_t keys[4];
    uint32_t columns[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = 2 * h + half;
      float of_q[2] = {bf16_low(q[i]), bf16_high(q[i])};
      float of_k[2] = {bf16_low(k[i]), bf16_high(k[i])};
      float left[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if constexpr (kInputs == Inputs::Raw) {
          of_q[j] *= q_norm[half];
          of_k[j] *= k_norm[half];
        }
        const float decay = exp2_fast(c[2 * i + j]);
        left[j] = of_k[j] * exp2_fast(-c[2 * i + j]);
        of_q[j] *= decay;
        of_k[j] *= decay;
        queries[2 * j + half] = round_tf32(of_q[j]);
        keys[2 * j + half] = round_tf32(of_k[j]);
        columns[2 * half + j] = round_tf32(left[j]);
      }
      to.queries[b][i] = pack_f16(of_q[0], of_q[1]);
      to.keys[b][i] = pack_f16(of_k[0], of_k[1]);
      to.leaving[b][i] = pack_f16(left[0] * total.x, left[1] * total.y);
    }
    mma_tf32(sums.l, keys, columns[0], columns[1]);
    mma_tf32(sums.l + 4, keys, columns[2], columns[3]);
    mma_tf32(sums.a, queries, columns[0], columns[1]);
    mma_tf32(sums.a + 4, queries, columns[2], columns[3]);
  }
  stmatrix(at + S::kQueries, to.queries[b]);
  stmatrix(at + S::kKeys, to.keys[b]);
  stmatrix(at + S::kLeaving, to.leaving[b]);
}

// Half sums of the second slab's warps for those of the first.
template <int K>
__device__ __forceinline__ void hand_on_sums(const DiagonalSums& sums, unsigned char* shared, const Part<K>& part) {
  auto* to = reinterpret_cast<float4*>(shared + PrepareShared<K>::kPartial) + part.tile() * 4 * 32 + part.lane;
  to[0] = make_float4(sums.l[0], sums.l[1], sums.l[2], sums.l[3]);
  to[32] = make_float4(sums.l[4], sums.l[5], sums.l[6], sums.l[7]);
  to[64] = make_float4(sums.a[0], sums.a[1], sums.a[2], sums.a[3]);
  to[96] = make_float4(sums.a[4], sums.a[5], sums.a[6], sums.a[7]);
}
template <int K>
__device__ __forceinline__ void add_handed_on(DiagonalSums& sums, const unsigned char* shared, const Part<K>& part) {
  const auto* from = reinterpret_cast<const float4*>(shared + PrepareShared<K>::kPartial) + part.tile() * 4 * 32 + part.lane;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float4 l = from[32 * i];
    const float4 a = from[32 * (i + 2)];
    sums.l[4 * i] += l.x;
    sums.l[4 * i + 1] += l.y;
    sums.l[4 * i + 2] += l.z;
    sums.l[4 * i + 3] += l.w;
    sums.a[4 * i] += a.x;
    sums.a[4 * i + 1] += a.y;
    sums.a[4 * i + 2] += a.z;
    sums.a[4 * i + 3] += a.w;
  }
}

// Stores a [16, 16] tile of a panel [64, 64].
__device__ __forceinline__ void put_tile(uint32_t panel, const uint32_t (&d)[4], int row_tile, int column_tile, int lane) {
  stmatrix(panel + panel_offset(row_tile * kTile + lane % 16, column_tile * kTile + lane / 16 * 8, kChunk), d);
}

// The sums times beta and scale: L in fp32 for the substitution, A masked.
template <int K>
__device__ __forceinline__ void finish_diagonal(const DiagonalSums& sums, unsigned char* shared, uint32_t base, float scale,
                                                const Part<K>& part) {
  using S = PrepareShared<K>;
  const int tile = part.tile();
  const auto* beta = reinterpret_cast<const float*>(shared + S::kBeta) + tile * kTile + part.lane / 4;
  auto* diagonal = reinterpret_cast<float*>(shared + S::kDiagonal) + tile * S::kDiagonalTile;
  uint32_t scores[4];
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const int row = block_row(i, part.lane);
    const int column = block_column(i, part.lane);
    const float of_row = beta[i / 2 % 2 * 8];
    *reinterpret_cast<float2*>(diagonal + row * S::kDiagonalRow + column) = make_float2(of_row * sums.l[i], of_row * sums.l[i + 1]);
    const float left = column <= row ? scale * sums.a[i] : 0.0F;
    const float right = column + 1 <= row ? scale * sums.a[i + 1] : 0.0F;
    scores[i / 2] = pack_f16(left, right);
  }
  put_tile(base + S::kScores, scores, tile, tile, part.lane);
}

// The six pairs of tiles below the diagonal, of L and of A.
template <int K>
__device__ __forceinline__ void lower_pair(unsigned char* shared, uint32_t base, float scale, int pair, int lane) {
  using S = PrepareShared<K>;
  const int row = pair < 1 ? 1 : (pair < 3 ? 2 : 3);
  const int column = pair - row * (row - 1) / 2;
  const int distance = row - column;
  const ColumnCursor keys = cursor_a({base + S::kKeys, kChunk}, row * kTile, lane);
  const ColumnCursor leaving = cursor_b({base + S::kLeaving, kChunk}, column * kTile, lane);
  const unsigned char* between = shared + S::kBetween + ((distance == 3 ? 2 : column) * K + lane % 4 * 2) * 2;
  float l[8] = {};
  float a[8] = {};
#pragma unroll
  for (int c = 0; c < K; c += 16) {
    uint32_t of_keys[4];
    uint32_t of_queries[4];
    uint32_t columns[4];
    ldmatrix(columns, leaving.at(c));
    ldmatrix(of_keys, keys.at(c));
    ldmatrix(of_queries, keys.at(c) + (S::kQueries - S::kKeys));
    if (distance > 1) {
      const uint32_t factor[2] = {read_pair(between + c * 2), read_pair(between + c * 2 + 16)};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        columns[i] = multiply_f16(columns[i], factor[i % 2]);
      }
    }
    mma_f16(l, of_keys, columns[0], columns[1]);
    mma_f16(l + 4, of_keys, columns[2], columns[3]);
    mma_f16(a, of_queries, columns[0], columns[1]);
    mma_f16(a + 4, of_queries, columns[2], columns[3]);
  }
  const auto* beta = reinterpret_cast<const float*>(shared + S::kBeta) + row * kTile + lane / 4;
  uint32_t lower[4];
  uint32_t scores[4];
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const float of_row = beta[i / 2 % 2 * 8];
    lower[i / 2] = pack_f16(of_row * l[i], of_row * l[i + 1]);
    scores[i / 2] = pack_f16(scale * a[i], scale * a[i + 1]);
  }
  put_tile(base + S::kLower, lower, row, column, lane);
  put_tile(base + S::kScores, scores, row, column, lane);
}

// Decays between tiles, of two channels a thread, from the decays of the tiles.
template <int K>
__device__ __forceinline__ void write_factors(unsigned char* shared, float scale, int thread) {
  using S = PrepareShared<K>;
  const int tile = thread / (K / 2);
  const int channel = thread % (K / 2) * 2;
  const unsigned char* totals = shared + S::kTotals + channel * 4;
  unsigned char* at = shared + (tile * K + channel) * 2;
  const auto total = [&](int t) { return read_float2(totals + t * K * 4); };
  const auto times = [](float2 x, float2 y) { return make_float2(x.x * y.x, x.y * y.y); };
  const auto write = [&](float2 before, float2 after) {
    put(at + S::kStarts, pack_f16(before.x, before.y));
    put(at + S::kScaled, pack_f16(scale * before.x, scale * before.y));
    put(at + S::kEnds, pack_f16(after.x, after.y));
  };
  const auto write_between = [&](float2 x) { put(at + S::kBetween - K * 2, pack_f16(x.x, x.y)); };
  const float2 one = make_float2(1.0F, 1.0F);
  // A warp has one tile.
  if (tile == 0) {
    write(one, times(times(total(1), total(2)), total(3)));
  } else if (tile == 1) {
    write(total(0), times(total(2), total(3)));
    write_between(total(1));
  } else if (tile == 2) {
    write(times(total(0), total(1)), total(3));
    write_between(total(2));
  } else {
    const float2 between = times(total(1), total(2));
    write(times(total(0), between), one);
    write_between(between);
  }
}

// The small parts of the image: beta, and the decay of the whole chunk. By 64 threads.
template <int K>
__device__ __forceinline__ void write_rest(unsigned char* image, const unsigned char* shared, int thread) {
  using S = PrepareShared<K>;
  using I = ChunkImage<K>;
  static_assert(K / 2 <= kChunk);
  reinterpret_cast<float*>(image + I::kBeta)[thread] = reinterpret_cast<const float*>(shared + S::kBeta)[thread];
  if (thread < K / 2) {
    const unsigned char* totals = shared + S::kTotals + thread * 8;
    float2 decay = read_float2(totals + 3 * K * 4);
#pragma unroll
    for (int t = 2; t >= 0; --t) {
      const float2 total = read_float2(totals + t * K * 4);
      decay.x *= total.x;
      decay.y *= total.y;
    }
    *reinterpret_cast<float2*>(image + I::kDecay + thread * 8) = decay;
  }
}

// The part's keys and queries as the image has them, in place of what they were.
template <int K>
__device__ __forceinline__ void write_decayed(const Decayed& decayed, const unsigned char* shared, uint32_t base, const Part<K>& part) {
  using S = PrepareShared<K>;
#pragma unroll
  for (int b = 0; b < kFragments; ++b) {
    const unsigned char* factors = shared + (part.tile() * K + part.channel(b)) * 2;
    uint32_t queries[4];
    uint32_t keys[4];
    uint32_t leaving[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned char* at = factors + i / 2 * 16;
      queries[i] = multiply_f16(decayed.queries[b][i], read_pair(at + S::kScaled));
      keys[i] = multiply_f16(decayed.keys[b][i], read_pair(at + S::kStarts));
      leaving[i] = multiply_f16(decayed.leaving[b][i], read_pair(at + S::kEnds));
    }
    const uint32_t at = part.fragment(base + part.offset(), b);
    stmatrix(at + S::kQueries, queries);
    stmatrix(at + S::kKeys, keys);
    stmatrix(at + S::kLeaving, leaving);
  }
}

}  // namespace longhaul::kda::cuda
