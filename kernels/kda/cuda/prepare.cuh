// Everything about a chunk that does not need the state, one block a chunk and head: decayed keys and queries, the score
// matrices L and A, and the inverse of I + L; written as a ChunkImage (Kimi Linear, arXiv:2510.26692, eq. 6-9).
//
// All tiles are dense products: row tile I against column tile J with the decay split at the first row of tile I,
//   E_ij = 2^{F_i} * 2^{P_I - P_J - F_j},  P = position of a tile's first row, F = decay inside the tile.
// Off the diagonal both factors are at most 1 and fp16 serves; on it the second reaches e^75 at the bound g >= -5, which
// needs the range of tf32. Its operands are formed from q, k and F as each lane loads them.
// I + L is inverted by forward substitution in its 16 x 16 tiles and block by block from there; never by powers of L.
#pragma once

#include "kernels/kda/cuda/products.cuh"
#include "kernels/kda/cuda/tile_share.cuh"

namespace longhaul::kda::cuda {

struct PrepareParams {
  InputParams in;
  Tables tables;
  int documents;
  unsigned char* images;  // [chunks, heads] ChunkImage
};

template <int K>
struct PrepareShared {
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
  static constexpr int kNorms = kBeta + kChunk * 4;                          // fp32 [2, 64] 1 / norm of q, k; raw inputs
  static constexpr int kBytes = kNorms + 2 * kChunk * 4;
  // Warps that share a diagonal tile, by channels.
  static constexpr int kShares = TileThread<K>::kThreads / 32 / kTiles;
};

__device__ __forceinline__ int block_row(int i, int lane) { return lane / 4 + i / 2 % 2 * 8; }
__device__ __forceinline__ int block_column(int i, int lane) { return lane % 4 * 2 + i / 4 * 8; }
__device__ __forceinline__ void put(unsigned char* to, uint32_t pair) { *reinterpret_cast<uint32_t*>(to) = pair; }

// The six blocks of L (units 0 to 5) and of A (6 to 11) below the diagonal: rows of tile I times keys of tile J decayed
// to the first of these rows.
template <int K>
__device__ __forceinline__ void lower_unit(unsigned char* shared, float scale, int unit, int lane) {
  using S = PrepareShared<K>;
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

// A diagonal tile of L and of A, not scaled, summed over a share of the channels. Lane (g, t) holds channels 2t and 2t + 1
// of rows g and g + 8, which serve as rows and as columns; the order of channels inside a step is free.
template <int K>
__device__ __forceinline__ void diagonal_sums(float (&l)[8], float (&a)[8], const unsigned char* shared, int tile, int share,
                                              int lane) {
  using S = PrepareShared<K>;
  constexpr int channels = K / S::kShares;
  const int row = tile * kTile + lane / 4;
  const int channel = share * channels + lane % 4 * 2;
  const unsigned char* decays = shared + S::kDecays + row * S::kDecayRow + channel * 4;
  const unsigned char* inputs = shared + S::kInputQueries + row * S::kInputRow + channel * 2;
  constexpr int key_offset = S::kInputKeys - S::kInputQueries;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    l[i] = 0.0F;
    a[i] = 0.0F;
  }
#pragma unroll 4
  for (int c = 0; c < channels; c += 8) {
    uint32_t queries[4];
    uint32_t keys[4];
    uint32_t columns[4];  // rows g and g + 8, two channels each
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 f = *reinterpret_cast<const float2*>(decays + half * 8 * S::kDecayRow + c * 4);
      const uint32_t q = *reinterpret_cast<const uint32_t*>(inputs + half * 8 * S::kInputRow + c * 2);
      const uint32_t k = *reinterpret_cast<const uint32_t*>(inputs + half * 8 * S::kInputRow + c * 2 + key_offset);
      const float decay[2] = {exp2_fast(f.x), exp2_fast(f.y)};
      queries[half] = round_tf32(bf16_low(q) * decay[0]);
      queries[half + 2] = round_tf32(bf16_high(q) * decay[1]);
      keys[half] = round_tf32(bf16_low(k) * decay[0]);
      keys[half + 2] = round_tf32(bf16_high(k) * decay[1]);
      columns[2 * half] = round_tf32(bf16_low(k) * exp2_fast(-f.x));
      columns[2 * half + 1] = round_tf32(bf16_high(k) * exp2_fast(-f.y));
    }
    mma_tf32(l, keys, columns[0], columns[1]);
    mma_tf32(l + 4, keys, columns[2], columns[3]);
    mma_tf32(a, queries, columns[0], columns[1]);
    mma_tf32(a + 4, queries, columns[2], columns[3]);
  }
}

// The sums times beta or scale, and times the norms where inputs are raw: L in fp32 for the substitution, A masked.
template <int K, Inputs kInputs>
__device__ __forceinline__ void finish_diagonal(const float (&l)[8], const float (&a)[8], unsigned char* shared, float scale,
                                                int tile, int lane) {
  using S = PrepareShared<K>;
  const auto* beta = reinterpret_cast<const float*>(shared + S::kBeta) + tile * kTile;
  const auto* q_norm = reinterpret_cast<const float*>(shared + S::kNorms) + tile * kTile;
  const float* k_norm = q_norm + kChunk;
  auto* diagonal = reinterpret_cast<float*>(shared + S::kDiagonal) + tile * S::kDiagonalTile;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const int row = block_row(i, lane);
    const int column = block_column(i, lane);
    float to_l[2] = {beta[row], beta[row]};
    float to_a[2] = {scale, scale};
    if constexpr (kInputs == Inputs::Raw) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        to_l[j] *= k_norm[row] * k_norm[column + j];
        to_a[j] *= q_norm[row] * k_norm[column + j];
      }
    }
    diagonal[row * S::kDiagonalRow + column] = to_l[0] * l[i];
    diagonal[row * S::kDiagonalRow + column + 1] = to_l[1] * l[i + 1];
    const float left = column <= row ? to_a[0] * a[i] : 0.0F;
    const float right = column + 1 <= row ? to_a[1] * a[i + 1] : 0.0F;
    put(shared + S::kScores + panel_offset(tile * kTile + row, tile * kTile + column, kChunk), pack_f16(left, right));
  }
}

// The diagonal tiles of L and A, each by kShares warps.
template <int K, Inputs kInputs>
__device__ __forceinline__ void diagonal_tiles(unsigned char* shared, float scale, int warp, int lane) {
  using S = PrepareShared<K>;
  const int tile = warp % kTiles;
  const int share = warp / kTiles;
  float l[8];
  float a[8];
  diagonal_sums<K>(l, a, shared, tile, share, lane);
  if constexpr (S::kShares == 2) {
    auto* partial = reinterpret_cast<float*>(shared + S::kPartial) + tile * 2 * 8 * 32 + lane;
    if (share == 1) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        partial[i * 32] = l[i];
        partial[(8 + i) * 32] = a[i];
      }
    }
    sync_block();
    if (share == 0) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        l[i] += partial[i * 32];
        a[i] += partial[(8 + i) * 32];
      }
    }
  }
  if (share == 0) {
    finish_diagonal<K, kInputs>(l, a, shared, scale, tile, lane);
  }
}

// Column `column` of the inverse of the diagonal tile `tile`, by forward substitution.
template <int K>
__device__ __forceinline__ void invert_diagonal(unsigned char* shared, int tile, int column) {
  using S = PrepareShared<K>;
  const auto* l = reinterpret_cast<const float*>(shared + S::kDiagonal) + tile * S::kDiagonalTile;
  float x[kTile];
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    float sum = i == column ? 1.0F : 0.0F;
    float other = 0.0F;
#pragma unroll
    for (int m = 0; m < i; m += 4) {
      const float4 row = *reinterpret_cast<const float4*>(l + i * S::kDiagonalRow + m);
      sum -= row.x * x[m];
      if (m + 1 < i) {
        other -= row.y * x[m + 1];
      }
      if (m + 2 < i) {
        sum -= row.z * x[m + 2];
      }
      if (m + 3 < i) {
        other -= row.w * x[m + 3];
      }
    }
    x[i] = sum + other;
  }
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const uint32_t at = panel_offset(tile * kTile + i, tile * kTile + column, kChunk);
    const auto value = static_cast<uint16_t>(pack_f16(x[i], 0.0F));
    *reinterpret_cast<uint16_t*>(shared + S::kInverse + at) = value;
    *reinterpret_cast<uint16_t*>(shared + S::kSolve + at) = i == column ? uint16_t{0} : value;
  }
}

// T_IJ = -T_II sum_{J <= M < I} L_IM T_MJ, by one warp; the sum is formed transposed, so that it is a right operand as it
// stands in registers.
template <int K>
__device__ __forceinline__ void invert_block(unsigned char* shared, int row, int column, int lane) {
  using S = PrepareShared<K>;
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
template <int K, Inputs kInputs>
__device__ __forceinline__ void write_decayed(const TileShare<K>& share, const InputParams& in, unsigned char* shared,
                                              unsigned char* image) {
  using S = PrepareShared<K>;
  using I = ChunkImage<K>;
  const int tile = share.tile;
  const TileDecay d = tile_decay<K>(share, reinterpret_cast<const float*>(shared + S::kLogs), in.scale, image + I::kDecay);
  const auto* norms = reinterpret_cast<const float*>(shared + S::kNorms) + tile * kTile;
  const int slab = share.channel / kSlab;
  unsigned char* to_tile = shared + tile * S::kTilePanel + slab * kTile * kSlabRowBytes;
  unsigned char* to_image = image + (slab * kChunk + tile * kTile) * kSlabRowBytes;
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    // Rows r and r + 8 share their swizzle.
    const uint32_t at = panel_offset(r % 8, share.channel % kSlab, kTile);
    unsigned char* in_tile = to_tile + at + r / 8 * 8 * kSlabRowBytes;
    unsigned char* in_image = to_image + at + r / 8 * 8 * kSlabRowBytes;
    float q[2] = {bf16_low(share.q[r]), bf16_high(share.q[r])};
    float k[2] = {bf16_low(share.k[r]), bf16_high(share.k[r])};
    if constexpr (kInputs == Inputs::Raw) {
      q[0] *= norms[r];
      q[1] *= norms[r];
      k[0] *= norms[kChunk + r];
      k[1] *= norms[kChunk + r];
    }
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

// What the tiles on the diagonal are formed from.
template <int K>
__device__ __forceinline__ void write_inputs(const TileShare<K>& share, unsigned char* shared) {
  using S = PrepareShared<K>;
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    const int row = share.tile * kTile + r;
    *reinterpret_cast<float2*>(shared + S::kDecays + row * S::kDecayRow + share.channel * 4) =
        make_float2(share.decay[r][0], share.decay[r][1]);
    put(shared + S::kInputQueries + row * S::kInputRow + share.channel * 2, share.q[r]);
    put(shared + S::kInputKeys + row * S::kInputRow + share.channel * 2, share.k[r]);
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

template <int K, Inputs kInputs>
[[nodiscard]] __device__ __forceinline__ float fetch_beta(const InputParams& in, const ChunkEntry& chunk, int head, int row) {
  if (row >= chunk.rows) {
    return 0.0F;
  }
  const int64_t at = (chunk.first_token + row) * in.heads + head;
  return kInputs == Inputs::Ready ? in.beta[at] : sigmoid_fast(bf16_low(in.beta_logits[at]));
}

// Decayed panels, then score blocks, then the inverse. `fetch_next` is called as soon as the inputs are in shared memory,
// so that the next chunk's loads run under the rest.
template <int K, Inputs kInputs, class FetchNext>
__device__ __forceinline__ void prepare_chunk(const PrepareParams& p, const TileShare<K>& share, float beta, unsigned char* image,
                                              int thread, FetchNext&& fetch_next) {
  using S = PrepareShared<K>;
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
  if constexpr (kInputs == Inputs::Raw) {
    static_assert(threads * (2 * kTile + 4) * 4 <= S::kOperands);
    inverse_norms(share, reinterpret_cast<float*>(shared), reinterpret_cast<float*>(shared + S::kNorms), thread);
  } else {
    sync_block();
  }
  write_decayed<K, kInputs>(share, p.in, shared, image);
  sync_block();
  for (int unit = warp; unit < 12; unit += warps) {
    lower_unit<K>(shared, p.in.scale, unit, lane);
  }
  sync_block();
  write_inputs<K>(share, shared);
  fetch_next();
  sync_block();
  diagonal_tiles<K, kInputs>(shared, p.in.scale, warp, lane);
  sync_block();
  if (warp < 2) {
    invert_diagonal<K>(shared, thread / kTile, thread % kTile);
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

// A block takes chunk and head `block`, then `block + blocks`, and so on.
template <int K, Inputs kInputs>
__global__ void __launch_bounds__(TileThread<K>::kThreads, K == 128 ? 2 : 3) prepare_kernel(const PrepareParams p) {
  int thread = thread_index();
  const int64_t items = static_cast<int64_t>(p.tables.document_chunks[p.documents]) * p.in.heads;
  int64_t item = block_index();
  if (item >= items) {
    return;
  }
  FetchedTile<K, kInputs> fetched;
  int rows;
  int head;
  float beta = 0.0F;
  // Without a next item the last one again: a condition would keep the old values in registers.
  const auto fetch = [&] {
    forget(thread);
    const int64_t fetched_item = item < items ? item : items - 1;
    const ChunkEntry chunk = p.tables.chunks[fetched_item / p.in.heads];
    head = static_cast<int>(fetched_item % p.in.heads);
    rows = chunk.rows;
    if (thread < kChunk) {
      beta = fetch_beta<K, kInputs>(p.in, chunk, head, thread);
    }
    fetched.fetch(p.in, chunk, head, TileThread<K>(thread));
  };
  fetch();
  while (item < items) {
    // Addresses are cheap to form anew, but not to keep in registers from one chunk to the next.
    forget(thread);
    unsigned char* image = p.images + item * ChunkImage<K>::kBytes;
    item += grid_blocks();
    const TileShare<K> share(fetched, p.in, head, rows, TileThread<K>(thread));
    prepare_chunk<K, kInputs>(p, share, beta, image, thread, fetch);
  }
}

}  // namespace longhaul::kda::cuda
