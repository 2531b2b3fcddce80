// Everything about a chunk that does not need the state, one block a chunk and head: decayed keys and queries, the score
// matrices L and A, and the inverse of I + L; written as a ChunkImage (Kimi Linear, arXiv:2510.26692, eq. 6-9).
//
// All tiles are dense products: row tile I against column tile J with the decay split at the first row of tile I,
//   E_ij = 2^{F_i} * 2^{P_I - P_J - F_j},  P = position of a tile's first row, F = decay inside the tile.
// Off the diagonal both factors are at most 1 and fp16 serves; on it the second reaches e^75 at the bound g >= -5, which
// needs the range of bf16.
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
  // First the operands of the tiles off the diagonal, in fp16; row tiles are 1 to 3, column tiles 0 to 2.
  static constexpr int kQueries = 0;                             // q 2^F
  static constexpr int kKeys = kQueries + 3 * kTilePanel;        // k 2^F
  static constexpr int kColumns1 = kKeys + 3 * kTilePanel;       // k decayed to the next tile's first row
  static constexpr int kColumns2 = kColumns1 + 3 * kTilePanel;   // to the first row of the tile after that; 2 tiles
  static constexpr int kColumns3 = kColumns2 + 2 * kTilePanel;   // 1 tile
  // Then, in the same place, those of the tiles on the diagonal, in bf16 for its range.
  static constexpr int kDiagonalQueries = 0;
  static constexpr int kDiagonalKeys = kDiagonalQueries + 4 * kTilePanel;
  static constexpr int kDiagonalColumns = kDiagonalKeys + 4 * kTilePanel;  // k 2^{-F}
  static constexpr int kOperands = 12 * kTilePanel;
  static_assert(kColumns3 + kTilePanel == kOperands);
  // Then the result.
  static constexpr int kSolve = 0;                                           // fp16 (I + L)^-1 - I
  static constexpr int kLower = kOperands;                                   // fp16 L
  static constexpr int kInverse = kLower + panel_bytes(kChunk, kChunk);      // fp16 (I + L)^-1
  static constexpr int kScores = kInverse + panel_bytes(kChunk, kChunk);     // fp16 A
  static constexpr int kDiagonalRow = 20;
  static constexpr int kDiagonalTile = kTile * kDiagonalRow + 4;             // padded against bank conflicts
  static constexpr int kDiagonal = kScores + panel_bytes(kChunk, kChunk);    // fp32 diagonal tiles of L
  static constexpr int kLogs = kDiagonal + kTiles * kDiagonalTile * 4;       // fp32 [2, 4, K] first, total
  static constexpr int kBeta = kLogs + 2 * kTiles * K * 4;                   // fp32 [64]
  static constexpr int kNorms = kBeta + kChunk * 4;                          // fp32 [2, 64]
  static constexpr int kBytes = kNorms + 2 * kChunk * 4;
};

struct BlockIndex {
  int row;
  int column;
};

// d [16, 16] = rows of a panel times rows of another, over all channels.
template <int K, Format kFormat>
__device__ __forceinline__ void score_block(float (&d)[8], Panel rows, int row, Panel columns, int column, int lane) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    d[i] = 0.0F;
  }
#pragma unroll
  for (int c = 0; c < K; c += 16) {
    uint32_t a[4];
    uint32_t b[4];
    load_a(a, rows, row, c, lane);
    load_b<Order::RowsOfPanel>(b, columns, column, c, lane);
    mma<kFormat>(d, a, b[0], b[1]);
    mma<kFormat>(d + 4, a, b[2], b[3]);
  }
}

__device__ __forceinline__ int block_row(int i, int lane) { return lane / 4 + i / 2 % 2 * 8; }
__device__ __forceinline__ int block_column(int i, int lane) { return lane % 4 * 2 + i / 4 * 8; }

// The six blocks of L (units 0 to 5) and of A (6 to 11) below the diagonal: rows of tile I times keys of tile J decayed
// to the first of these rows.
template <int K>
__device__ __forceinline__ void lower_unit(unsigned char* shared, int unit, int lane) {
  using S = PrepareShared<K>;
  const uint32_t base = shared_address(shared);
  const bool of_keys = unit < 6;
  const int u = unit % 6;
  const int row = u < 1 ? 1 : (u < 3 ? 2 : 3);
  const int column = u - row * (row - 1) / 2;
  const int distance = row - column;
  const int columns_at = distance == 1 ? S::kColumns1 : (distance == 2 ? S::kColumns2 : S::kColumns3);
  const Panel rows{base + static_cast<uint32_t>(of_keys ? S::kKeys : S::kQueries), 3 * kTile};
  const Panel columns{base + static_cast<uint32_t>(columns_at), kChunk - distance * kTile};
  float d[8];
  score_block<K, Format::F16>(d, rows, (row - 1) * kTile, columns, column * kTile, lane);
  const auto* beta = reinterpret_cast<const float*>(shared + S::kBeta) + row * kTile;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const float factor = of_keys ? beta[block_row(i, lane)] : 1.0F;
    const uint32_t at = panel_offset(row * kTile + block_row(i, lane), column * kTile + block_column(i, lane), kChunk);
    *reinterpret_cast<uint32_t*>(shared + (of_keys ? S::kLower : S::kScores) + at) = pack_f16(factor * d[i], factor * d[i + 1]);
  }
}

// The diagonal tiles of L (units 0 to 3), in fp32 for the substitution, and of A (4 to 7).
template <int K>
__device__ __forceinline__ void diagonal_unit(unsigned char* shared, int unit, int lane) {
  using S = PrepareShared<K>;
  const uint32_t base = shared_address(shared);
  const bool of_keys = unit < kTiles;
  const int tile = unit % kTiles;
  const Panel rows{base + static_cast<uint32_t>(of_keys ? S::kDiagonalKeys : S::kDiagonalQueries), kChunk};
  float d[8];
  score_block<K, Format::Bf16>(d, rows, tile * kTile, {base + S::kDiagonalColumns, kChunk}, tile * kTile, lane);
  const auto* beta = reinterpret_cast<const float*>(shared + S::kBeta) + tile * kTile;
  auto* diagonal = reinterpret_cast<float*>(shared + S::kDiagonal) + tile * S::kDiagonalTile;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const int row = block_row(i, lane);
    const int column = block_column(i, lane);
    if (of_keys) {
      diagonal[row * S::kDiagonalRow + column] = beta[row] * d[i];
      diagonal[row * S::kDiagonalRow + column + 1] = beta[row] * d[i + 1];
    } else {
      const uint32_t at = panel_offset(tile * kTile + row, tile * kTile + column, kChunk);
      *reinterpret_cast<uint32_t*>(shared + S::kScores + at) =
          pack_f16(column <= row ? d[i] : 0.0F, column + 1 <= row ? d[i + 1] : 0.0F);
    }
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

// q and k of one row and two channels in fp32: scaled, and normalised where inputs are raw.
template <int K, Inputs kInputs>
__device__ __forceinline__ void row_values(const TileShare<K>& share, const InputParams& in, const float* norms, int r,
                                           float (&q)[2], float (&k)[2]) {
  float q_scale = in.scale;
  float k_scale = 1.0F;
  if constexpr (kInputs == Inputs::Raw) {
    q_scale *= norms[share.tile * kTile + r];
    k_scale = norms[kChunk + share.tile * kTile + r];
  }
  q[0] = bf16_low(share.q[r]) * q_scale;
  q[1] = bf16_high(share.q[r]) * q_scale;
  k[0] = bf16_low(share.k[r]) * k_scale;
  k[1] = bf16_high(share.k[r]) * k_scale;
}

// Decays of two channels between the first row of a tile and other places, as factors.
struct TileDecay {
  float start[2];       // 2^P: from the start of the chunk
  float to_end[2];      // to the end of the chunk
  float to_next[3][2];  // to the first row of the next tile, from there to the one after, and again
  float chunk[2];       // e^{G_C}
};

template <int K>
__device__ __forceinline__ TileDecay tile_decay(const TileShare<K>& share, const float* firsts) {
  const float* totals = firsts + kTiles * K;
  TileDecay d;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int c = share.channel + i;
    float before = 0.0F;
    float all = 0.0F;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      before += t < share.tile ? totals[t * K + c] : 0.0F;
      all += totals[t * K + c];
    }
    const float position = before + share.first[i];
    d.start[i] = exp2_fast(position);
    d.to_end[i] = exp2_fast(all - position);
    d.chunk[i] = exp2_fast(all);
#pragma unroll
    for (int step = 0; step < 3; ++step) {
      const int next = share.tile + 1 + step;
      float left = share.decay[kTile - 1][i];
      if (step > 0) {
        left = next < kTiles ? totals[(next - 1) * K + c] - firsts[(next - 1) * K + c] : 0.0F;
      }
      d.to_next[step][i] = next < kTiles ? exp2_fast(left + firsts[next * K + c]) : 0.0F;
    }
  }
  return d;
}

__device__ __forceinline__ void put(unsigned char* to, uint32_t pair) { *reinterpret_cast<uint32_t*>(to) = pair; }

// The image's decayed keys and queries, and the operands of the tiles off the diagonal.
template <int K, Inputs kInputs>
__device__ __forceinline__ void write_decayed(const TileShare<K>& share, const InputParams& in, unsigned char* shared,
                                              unsigned char* image) {
  using S = PrepareShared<K>;
  using I = ChunkImage<K>;
  const TileDecay d = tile_decay<K>(share, reinterpret_cast<const float*>(shared + S::kLogs));
  const auto* norms = reinterpret_cast<const float*>(shared + S::kNorms);
  const int tile = share.tile;
  if (tile == 0) {
    *reinterpret_cast<float2*>(image + I::kDecay + share.channel * 4) = make_float2(d.chunk[0], d.chunk[1]);
  }
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    const int row = tile * kTile + r;
    float q[2];
    float k[2];
    float inverse[2];
    row_values<K, kInputs>(share, in, norms, r, q, k);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float decay = exp2_fast(share.decay[r][i]);
      inverse[i] = k[i] * exp2_fast(-share.decay[r][i]);
      q[i] *= decay;
      k[i] *= decay;
    }
    const uint32_t at = panel_offset(row, share.channel, kChunk);
    put(image + I::kQueries + at, pack_f16(q[0] * d.start[0], q[1] * d.start[1]));
    put(image + I::kKeys + at, pack_f16(k[0] * d.start[0], k[1] * d.start[1]));
    put(image + I::kLeaving + at, pack_f16(inverse[0] * d.to_end[0], inverse[1] * d.to_end[1]));
    if (tile > 0) {
      const uint32_t row_at = panel_offset(row - kTile, share.channel, 3 * kTile);
      put(shared + S::kQueries + row_at, pack_f16(q[0], q[1]));
      put(shared + S::kKeys + row_at, pack_f16(k[0], k[1]));
    }
    constexpr int columns_at[3] = {S::kColumns1, S::kColumns2, S::kColumns3};
#pragma unroll
    for (int step = 0; step < 3; ++step) {
      if (tile + step < 3) {
        inverse[0] *= d.to_next[step][0];
        inverse[1] *= d.to_next[step][1];
        put(shared + columns_at[step] + panel_offset(row, share.channel, kChunk - (step + 1) * kTile),
            pack_f16(inverse[0], inverse[1]));
      }
    }
  }
}

// The operands of the tiles on the diagonal.
template <int K, Inputs kInputs>
__device__ __forceinline__ void write_diagonal(const TileShare<K>& share, const InputParams& in, unsigned char* shared) {
  using S = PrepareShared<K>;
  const auto* norms = reinterpret_cast<const float*>(shared + S::kNorms);
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    float q[2];
    float k[2];
    row_values<K, kInputs>(share, in, norms, r, q, k);
    const float decay[2] = {exp2_fast(share.decay[r][0]), exp2_fast(share.decay[r][1])};
    const float inverse[2] = {exp2_fast(-share.decay[r][0]), exp2_fast(-share.decay[r][1])};
    const uint32_t at = panel_offset(share.tile * kTile + r, share.channel, kChunk);
    put(shared + S::kDiagonalQueries + at, pack_bf16(q[0] * decay[0], q[1] * decay[1]));
    put(shared + S::kDiagonalKeys + at, pack_bf16(k[0] * decay[0], k[1] * decay[1]));
    put(shared + S::kDiagonalColumns + at, pack_bf16(k[0] * inverse[0], k[1] * inverse[1]));
  }
}

// The lower blocks of a [64, 64] panel from shared memory to the image, zeros above.
__device__ __forceinline__ void copy_lower(const unsigned char* from, unsigned char* to, int thread, int threads) {
  for (int piece = thread; piece < kChunk * 8; piece += threads) {
    const int row = piece / 8;
    const int column = ((piece % 8) ^ (row & 7)) * 8;
    uint4 value = make_uint4(0, 0, 0, 0);
    if (column / kTile <= row / kTile) {
      value = *reinterpret_cast<const uint4*>(from + piece * 16);
    }
    *reinterpret_cast<uint4*>(to + piece * 16) = value;
  }
}

template <int K, Inputs kInputs>
__device__ __forceinline__ void load_beta(const InputParams& in, const ChunkEntry& chunk, int head, float* beta, int row) {
  const int64_t at = (chunk.first_token + row) * in.heads + head;
  float value = 0.0F;
  if (row < chunk.rows) {
    if constexpr (kInputs == Inputs::Ready) {
      value = in.beta[at];
    } else {
      value = sigmoid_fast(bf16_value(in.beta_logits[at]));
    }
  }
  beta[row] = value;
}

template <int K, Inputs kInputs>
__global__ void __launch_bounds__(TileShare<K>::kThreads, K == 128 ? 2 : 3) prepare_kernel(const PrepareParams p) {
  using S = PrepareShared<K>;
  using I = ChunkImage<K>;
  constexpr int threads = TileShare<K>::kThreads;
  constexpr int warps = threads / 32;
  const int chunk_index = block_index() / p.in.heads;
  const int head = block_index() % p.in.heads;
  if (chunk_index >= p.tables.document_chunks[p.documents]) {
    return;
  }
  const ChunkEntry chunk = p.tables.chunks[chunk_index];
  unsigned char* shared = dynamic_shared();
  unsigned char* image = p.images + static_cast<int64_t>(block_index()) * I::kBytes;
  const int thread = thread_index();
  const int lane = thread % 32;
  const int warp = thread / 32;
  {
    TileShare<K> share;
    share.template load<kInputs>(p.in, chunk, head, thread);
    auto* logs = reinterpret_cast<float*>(shared + S::kLogs);
    *reinterpret_cast<float2*>(logs + share.tile * K + share.channel) = make_float2(share.first[0], share.first[1]);
    *reinterpret_cast<float2*>(logs + (kTiles + share.tile) * K + share.channel) = make_float2(share.total(0), share.total(1));
    if (thread < kChunk) {
      auto* beta = reinterpret_cast<float*>(shared + S::kBeta);
      load_beta<K, kInputs>(p.in, chunk, head, beta, thread);
      reinterpret_cast<float*>(image + I::kBeta)[thread] = beta[thread];
    }
    if constexpr (kInputs == Inputs::Raw) {
      inverse_norms(share, reinterpret_cast<float*>(shared + S::kDiagonal), reinterpret_cast<float*>(shared + S::kNorms), thread);
    } else {
      sync_block();
    }
    write_decayed<K, kInputs>(share, p.in, shared, image);
    sync_block();
    for (int unit = warp; unit < 12; unit += warps) {
      lower_unit<K>(shared, unit, lane);
    }
    sync_block();
    write_diagonal<K, kInputs>(share, p.in, shared);
  }
  sync_block();
  for (int unit = warp; unit < 2 * kTiles; unit += warps) {
    diagonal_unit<K>(shared, unit, lane);
  }
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
  copy_lower(shared + S::kSolve, image + I::kSolve, thread, threads);
  copy_lower(shared + S::kScores, image + I::kScores, thread, threads);
}

}  // namespace longhaul::kda::cuda
