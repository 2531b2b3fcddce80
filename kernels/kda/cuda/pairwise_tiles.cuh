// What the preparation of chunks with gates without a bound (prepare_pairwise.cuh) is made of, but for the tiles on the diagonal:
// a thread has two channels of a tile's 16 rows (tile_share.cuh), and writes the operands of the tiles below the diagonal.
#pragma once

#include "kernels/kda/cuda/prepare_inverse.cuh"
#include "kernels/kda/cuda/prepare_layout.cuh"
#include "kernels/kda/cuda/tile_share.cuh"

namespace longhaul::kda::cuda {

template <int K>
struct PairwiseTilesShared {
  static constexpr int kTilePanel = panel_bytes(kTile, K);
  // First the operands of the tiles off the diagonal, fp16 panels of 16 rows; row tiles are 1 to 3, column tiles 0 to 2.
  static constexpr int kQueries = 0;                             // q 2^F
  static constexpr int kKeys = kQueries + 3 * kTilePanel;        // k 2^F
  static constexpr int kColumns1 = kKeys + 3 * kTilePanel;       // k decayed to the next tile's first row
  static constexpr int kColumns2 = kColumns1 + 3 * kTilePanel;   // to the first row of the tile after that; 2 tiles
  static constexpr int kColumns3 = kColumns2 + 2 * kTilePanel;   // 1 tile
  // Then, in the same place, F and the inputs for the tiles on the diagonal; padded rows against bank conflicts.
  static constexpr int kDecayRow = 4 * K + 32;
  static constexpr int kInputRow = 2 * K + 16;
  static constexpr int kDecays = 0;                                        // fp32 [64, K]
  static constexpr int kInputQueries = kDecays + kChunk * kDecayRow;       // bf16 [64, K]
  static constexpr int kInputKeys = kInputQueries + kChunk * kInputRow;    // bf16 [64, K]
  static constexpr int kOperands = static_cast<int>(round_up_to(kInputKeys + kChunk * kInputRow, 1024));
  static_assert(kColumns3 + kTilePanel <= kOperands);
  // Then the result.
  static constexpr int kSolve = 0;                                           // fp16 (I + L)^-1 - I
  static constexpr int kLower = kOperands;                                   // fp16 L
  static constexpr int kInverse = kLower + panel_bytes(kChunk, kChunk);      // fp16 (I + L)^-1
  static constexpr int kPartial = kInverse;                                  // fp32 [4, 2, 8, 32] half sums; before it
  static constexpr int kScores = kInverse + panel_bytes(kChunk, kChunk);     // fp16 A
  static constexpr int kDiagonalRow = 20;
  static constexpr int kDiagonalTile = kTile * kDiagonalRow + 4;             // padded against bank conflicts
  static constexpr int kDiagonal = kScores + panel_bytes(kChunk, kChunk);    // fp32 diagonal tiles of L
  static constexpr int kLogs = kDiagonal + kTiles * kDiagonalTile * 4;       // fp32 [2, 4, K] first, total
  static constexpr int kBeta = kLogs + 2 * kTiles * K * 4;                   // fp32 [64]
  static constexpr int kBytes = kBeta + kChunk * 4;
  // Warps that share a diagonal tile, by channels.
  static constexpr int kShares = TileThread<K>::kThreads / 32 / kTiles;
};

// The six blocks of L (units 0 to 5) and of A (6 to 11) below the diagonal: rows of tile I times keys of tile J decayed
// to the first of these rows.
template <int K>
__device__ __forceinline__ void lower_unit(unsigned char* shared, float scale, int unit, int lane) {
  using S = PairwiseTilesShared<K>;
  const uint32_t base = shared_address(shared);
  const bool of_keys = unit < 6;
  const int u = unit % 6;
  const int row = u < 1 ? 1 : (u < 3 ? 2 : 3);
  const int column = u - row * (row - 1) / 2;
  const int distance = row - column;
  const int columns_at = distance == 1 ? S::kColumns1 : (distance == 2 ? S::kColumns2 : S::kColumns3);
  const int rows_at = (of_keys ? S::kKeys : S::kQueries) + (row - 1) * S::kTilePanel;
  const ColumnCursor rows = cursor_a({base + static_cast<uint32_t>(rows_at), kTile}, 0, lane);
  const ColumnCursor columns = cursor_b({base + static_cast<uint32_t>(columns_at + column * S::kTilePanel), kTile}, 0, lane);
  float d[8] = {};
#pragma unroll
  for (int c = 0; c < K; c += 16) {
    uint32_t a[4];
    uint32_t b[4];
    ldmatrix(a, rows.at(c));
    ldmatrix(b, columns.at(c));
    mma_f16(d, a, b[0], b[1]);
    mma_f16(d + 4, a, b[2], b[3]);
  }
  const auto* beta = reinterpret_cast<const float*>(shared + S::kBeta) + row * kTile;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const float factor = of_keys ? beta[block_row(i, lane)] : scale;
    const uint32_t at = panel_offset(row * kTile + block_row(i, lane), column * kTile + block_column(i, lane), kChunk);
    put(shared + (of_keys ? S::kLower : S::kScores) + at, pack_f16(factor * d[i], factor * d[i + 1]));
  }
}

// T_IJ = -T_II sum_{J <= M < I} L_IM T_MJ, by one warp; the sum is formed transposed, so that it is a right operand as it
// stands in registers.
template <int K>
__device__ __forceinline__ void invert_block(unsigned char* shared, int row, int column, int lane) {
  using S = PairwiseTilesShared<K>;
  const uint32_t base = shared_address(shared);
  const Panel lower{base + S::kLower, kChunk};
  const Panel inverse{base + S::kInverse, kChunk};
  float sum[8] = {};
  for (int m = column; m < row; ++m) {
    uint32_t a[4];
    uint32_t b[4];
    load_a_transposed(a, inverse, m * kTile, column * kTile, lane);
    load_b<Order::RowsOfPanel>(b, lower, row * kTile, m * kTile, lane);
    mma_f16(sum, a, b[0], b[1]);
    mma_f16(sum + 4, a, b[2], b[3]);
  }
  uint32_t a[4];
  load_a(a, inverse, row * kTile, row * kTile, lane);
  float d[8] = {};
  mma_f16(d, a, pack_f16(sum[0], sum[1]), pack_f16(sum[4], sum[5]));
  mma_f16(d + 4, a, pack_f16(sum[2], sum[3]), pack_f16(sum[6], sum[7]));
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const uint32_t at = panel_offset(row * kTile + block_row(i, lane), column * kTile + block_column(i, lane), kChunk);
    const uint32_t value = pack_f16(-d[i], -d[i + 1]);
    *reinterpret_cast<uint32_t*>(shared + S::kInverse + at) = value;
    *reinterpret_cast<uint32_t*>(shared + S::kSolve + at) = value;
  }
}

// Decays of two channels between places of the chunk, as fp16 pairs.
struct TileDecay {
  uint32_t start;       // from the start of the chunk to the tile's first row, in fp16: tiny ones vanish, as they may
  uint32_t start_scaled;
  uint32_t to_end;      // from the tile's last row to the end of the chunk
  uint32_t to_next[3];  // from there to the first row of the next tile, from that to the one after, and again
};

template <int K>
__device__ __forceinline__ TileDecay tile_decay(const TileShare<K>& share, const float* firsts, float scale,
                                                unsigned char* chunk_decay) {
  const float* totals = firsts + kTiles * K;
  float start[2];
  float to_end[2];
  float to_next[3][2];
  float chunk[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int c = share.channel + i;
    float before = 0.0F;
    float after = 0.0F;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const float total = totals[t * K + c];
      before += t < share.tile ? total : 0.0F;
      after += t > share.tile ? total : 0.0F;
    }
    start[i] = exp2_fast(before + share.first[i]);
    to_end[i] = exp2_fast(after);
    chunk[i] = exp2_fast(before + share.total(i) + after);
#pragma unroll
    for (int step = 0; step < 3; ++step) {
      const int next = share.tile + 1 + step;
      float left = 0.0F;
      if (step > 0) {
        left = next < kTiles ? totals[(next - 1) * K + c] - firsts[(next - 1) * K + c] : 0.0F;
      }
      to_next[step][i] = next < kTiles ? exp2_fast(left + firsts[next * K + c]) : 0.0F;
    }
  }
  if (share.tile == 0) {
    *reinterpret_cast<float2*>(chunk_decay + share.channel * 4) = make_float2(chunk[0], chunk[1]);
  }
  TileDecay d;
  d.start = pack_f16(start[0], start[1]);
  d.start_scaled = pack_f16(scale * start[0], scale * start[1]);
  d.to_end = pack_f16(to_end[0], to_end[1]);
#pragma unroll
  for (int step = 0; step < 3; ++step) {
    d.to_next[step] = pack_f16(to_next[step][0], to_next[step][1]);
  }
  return d;
}

// The image's decayed keys and queries, and the operands of the tiles off the diagonal.
template <int K>
__device__ __forceinline__ void write_decayed_tile(const TileShare<K>& share, const InputParams& in, unsigned char* shared,
                                              unsigned char* image) {
  using S = PairwiseTilesShared<K>;
  using I = ChunkImage<K>;
  const int tile = share.tile;
  const TileDecay d = tile_decay<K>(share, reinterpret_cast<const float*>(shared + S::kLogs), in.scale, image + I::kDecay);
  const int slab = share.channel / kSlab;
  unsigned char* to_tile = shared + tile * S::kTilePanel + slab * kTile * kSlabRowBytes;
  unsigned char* to_image = image + (slab * kChunk + tile * kTile) * kSlabRowBytes;
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    // Rows r and r + 8 share their swizzle.
    const uint32_t at = panel_offset(r % 8, share.channel % kSlab, kTile);
    unsigned char* in_tile = to_tile + at + r / 8 * 8 * kSlabRowBytes;
    unsigned char* in_image = to_image + at + r / 8 * 8 * kSlabRowBytes;
    const float q[2] = {bf16_low(share.q[r]), bf16_high(share.q[r])};
    const float k[2] = {bf16_low(share.k[r]), bf16_high(share.k[r])};
    const float decay[2] = {exp2_fast(share.decay[r][0]), exp2_fast(share.decay[r][1])};
    const float left[2] = {exp2_fast(share.decay[kTile - 1][0] - share.decay[r][0]),
                           exp2_fast(share.decay[kTile - 1][1] - share.decay[r][1])};
    const uint32_t queries = pack_f16(q[0] * decay[0], q[1] * decay[1]);
    const uint32_t keys = pack_f16(k[0] * decay[0], k[1] * decay[1]);
    const uint32_t last = pack_f16(k[0] * left[0], k[1] * left[1]);
    put(in_image + I::kQueries, multiply_f16(queries, d.start_scaled));
    put(in_image + I::kKeys, multiply_f16(keys, d.start));
    put(in_image + I::kLeaving, multiply_f16(last, d.to_end));
    // Single conditional stores: branches around more would cost more than they save.
    const uint32_t to_1 = multiply_f16(last, d.to_next[0]);
    const uint32_t to_2 = multiply_f16(to_1, d.to_next[1]);
    const uint32_t to_3 = multiply_f16(to_2, d.to_next[2]);
    if (tile > 0) {
      put(in_tile + S::kQueries - S::kTilePanel, queries);
    }
    if (tile > 0) {
      put(in_tile + S::kKeys - S::kTilePanel, keys);
    }
    if (tile < 3) {
      put(in_tile + S::kColumns1, to_1);
    }
    if (tile < 2) {
      put(in_tile + S::kColumns2, to_2);
    }
    if (tile < 1) {
      put(in_tile + S::kColumns3, to_3);
    }
  }
}

// The lower blocks of a [64, 64] panel from shared memory to the image, zeros above.
template <int kThreads>
__device__ __forceinline__ void copy_lower(const unsigned char* from, unsigned char* to, int thread) {
  const int row0 = thread / 8;
  const int at = thread * 16;
  const int tile_column = ((thread % 8) ^ (row0 & 7)) / 2;
#pragma unroll
  for (int i = 0; i < kChunk * 8 / kThreads; ++i) {
    const bool lower = tile_column <= (row0 + i * kThreads / 8) / kTile;
    uint4 value = make_uint4(0, 0, 0, 0);
    if (lower) {
      value = *reinterpret_cast<const uint4*>(from + at + i * kThreads * 16);
    }
    *reinterpret_cast<uint4*>(to + at + i * kThreads * 16) = value;
  }
}

}  // namespace longhaul::kda::cuda
