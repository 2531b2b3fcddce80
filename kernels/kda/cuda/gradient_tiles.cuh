// Products between the tiles of a chunk, for its gradients (gradients.cuh): dA and dL, and what they make of keys and queries.
#pragma once

#include "kernels/kda/cuda/gradient_factors.cuh"

namespace longhaul::kda::cuda {

// Where a thread stands: a warp has 16 rows and 32 channels; rows g and g + 8, channels 8 n + 2 t and the next, for
// n = 0 to 3 and its lane 4 g + t.
struct TilePlace {
  int lane;
  int tile;
  int part;
  int channel;  // of n = 0

  explicit __device__ __forceinline__ TilePlace(int thread)
      : lane(thread % 32), tile(thread / 32 % kTiles), part(thread / 32 / kTiles), channel(part * 32 + lane % 4 * 2) {}
  [[nodiscard]] __device__ __forceinline__ int row(int half) const { return tile * kTile + lane / 4 + 8 * half; }
};

// Which tiles of dA and dL a warp forms: the first half of a row tile's warps those of dA.
template <int D>
struct ScoreTiles {
  static constexpr int kWarps = GradientShared<D>::kParts / 2;  // for dA, and for dL, of a row tile
  static constexpr int kTurns = kTiles / kWarps;
  bool is_queries;
  int first;

  explicit __device__ __forceinline__ ScoreTiles(const TilePlace& at)
      : is_queries(at.part < kWarps), first(at.part % kWarps * kTurns) {}
  [[nodiscard]] __device__ __forceinline__ int column_tile(int turn) const { return first + turn; }
};

template <int D>
using Scores = float[ScoreTiles<D>::kTurns][8];

// The products with the states: S dO, S dR and dS' Vt, and tiles of dA and -dL, all in the unit. A warpgroup has all rows and 32
// channels, and of dA or dL all rows and some columns; `meanwhile` is done while the tensor cores work.
template <int D, class Meanwhile>
__device__ __forceinline__ void multiply_states(float (&acc_q)[16], float (&acc_k)[16], float (&out)[16], Scores<D>& scores,
                                                uint32_t base, const TilePlace& at, Meanwhile&& meanwhile) {
  using S = GradientShared<D>;
  constexpr int score_columns = ScoreTiles<D>::kTurns * kTile;
  const ScoreTiles<D> tiles(at);
  const auto unit_of = [&](int panel, int row, int column, int rows) {
    return (base + static_cast<uint32_t>(panel + (column / kSlab * rows + row) * kSlabRowBytes + column % kSlab * 2)) >> 4;
  };
  const uint32_t channels = unit_of(S::kStates, 0, at.part * 32, D);
  const uint32_t columns = unit_of(S::kResiduals, tiles.first * kTile, 0, kChunk);
  const uint32_t score_rows = unit_of(tiles.is_queries ? S::kOutputs : S::kResidualGradients, 0, 0, kChunk);
  wgmma_fence();
#pragma unroll
  for (int v = 0; v < D; v += 16) {
    const Into into = v == 0 ? Into::Set : Into::Add;
    const auto along = static_cast<uint32_t>((v / kSlab * kChunk * kSlabRowBytes + v % kSlab * 2) / 16);
    const auto down = static_cast<uint32_t>(v * kSlabRowBytes / 16);
    const uint64_t state = panel_descriptor(channels + down, D);
    const uint64_t gradient = panel_descriptor(channels + down + (S::kStateGradients - S::kStates) / 16, D);
    const auto rows = [&](int panel) { return panel_descriptor((base + static_cast<uint32_t>(panel)) / 16 + along, kChunk); };
    wgmma_shared<32, Order::ColumnsOfPanel>(acc_q, rows(S::kOutputs), state, into);
    wgmma_shared<32, Order::ColumnsOfPanel>(acc_k, rows(S::kResidualGradients), state, into);
    wgmma_shared<32, Order::ColumnsOfPanel>(out, rows(S::kResiduals), gradient, into);
    wgmma_shared<score_columns, Order::RowsOfPanel>(&scores[0][0], panel_descriptor(score_rows + along, kChunk),
                                                    panel_descriptor(columns + along, kChunk), into);
  }
  wgmma_commit();
  meanwhile();
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    hold(acc_q[i]);
    hold(acc_k[i]);
    hold(out[i]);
  }
#pragma unroll
  for (int i = 0; i < 8 * ScoreTiles<D>::kTurns; ++i) {
    hold(scores[i / 8][i % 8]);
  }
}

// The largest of the warp's scores, for score_scale.
template <int D>
__device__ __forceinline__ void share_largest(const Scores<D>& scores, unsigned char* shared, int thread) {
  float largest = 0.0F;
#pragma unroll
  for (int turn = 0; turn < ScoreTiles<D>::kTurns; ++turn) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      largest = max(largest, fabsf(scores[turn][i]));
    }
  }
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) {
    largest = max(largest, shuffle_xor(largest, mask));
  }
  if (thread % 32 == 0) {
    reinterpret_cast<float*>(shared + GradientShared<D>::kLargest)[thread / 32] = largest;
  }
}
// A power of two that brings the chunk's largest score to 2^14, so that fp16 holds it and what is much smaller.
template <int D>
[[nodiscard]] __device__ __forceinline__ float score_scale(const unsigned char* shared) {
  using S = GradientShared<D>;
  const auto* of_warps = reinterpret_cast<const float*>(shared + S::kLargest);
  float largest = 9.0949470e-13F;  // 2^-40
#pragma unroll
  for (int i = 0; i < S::kWarps; ++i) {
    largest = max(largest, of_warps[i]);
  }
  return float_of((268U - (bits_of(largest) >> 23)) << 23);
}

// The warp's tile (its own, column_tile) of dA or dL, times `scale`, to its panel; dA's diagonal apart.
template <int D, Format kFormat>
__device__ __forceinline__ void put_scores(const float (&scores)[8], float scale, bool is_queries, int column_tile, unsigned char* shared,
                                           const TilePlace& at) {
  using S = GradientShared<D>;
  unsigned char* panel = shared + S::kScores + (is_queries ? 0 : panel_bytes(kChunk, kChunk));
  const float signed_scale = is_queries ? scale : -scale;
  const bool on_diagonal = column_tile == at.tile;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const int row = at.row(i / 2 % 2);
    const int column = column_tile * kTile + at.lane % 4 * 2 + i / 4 * 8;
    float x[2] = {scores[i] * signed_scale, scores[i + 1] * signed_scale};
    if (on_diagonal) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (is_queries && column + j == row) {
          reinterpret_cast<float*>(shared + S::kDiagonal)[row] = x[j];
        }
        x[j] = column + j < row ? x[j] : 0.0F;
      }
    }
    *reinterpret_cast<uint32_t*>(panel + panel_offset(row, column, kChunk)) = pack<kFormat>(x[0], x[1]);
  }
}

// x times kSteps of a tile, by channels.
template <int D>
__device__ __forceinline__ void pass_tile(float (&x)[16], const unsigned char* shared, int tile, int channel) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const float2 f = *reinterpret_cast<const float2*>(shared + GradientShared<D>::kSteps + (tile * D + channel + 8 * n) * 4);
    x[4 * n] *= f.x;
    x[4 * n + 1] *= f.y;
    x[4 * n + 2] *= f.x;
    x[4 * n + 3] *= f.y;
  }
}

// d [16, 32] += a [16, 16] times 16 rows of a panel, 32 channels at two places.
template <Format kFormat>
__device__ __forceinline__ void add_rows(float (&d)[16], const uint32_t (&a)[4], const uint32_t (&b)[2][4]) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    mma<kFormat>(d + 8 * n, a, b[n][0], b[n][1]);
    mma<kFormat>(d + 8 * n + 4, a, b[n][2], b[n][3]);
  }
}

// Whether tiles on the diagonal are products like the others. Then operands and accumulators have tiles' first rows as anchors, and
// kSteps leads from one to the next; without them the anchors are tiles' ends, and kSteps is the decay over a tile.
enum class Diagonal : uint8_t { Product, Apart };

// row_q and row_k, to which the state comes as if from a tile before; then col.
template <int D, Format kFormat, Diagonal kDiagonal>
__device__ __forceinline__ void multiply_tiles(float (&acc_q)[16], float (&acc_k)[16], float (&col)[16], const unsigned char* shared,
                                               uint32_t base, const TilePlace& at) {
  using S = GradientShared<D>;
  constexpr uint32_t to_keys = panel_bytes(kChunk, kChunk);  // from dA to dL
  constexpr uint32_t tile_rows = kTile * kSlabRowBytes;      // from a row tile of a panel to the next
  const Panel scores{base + S::kScores, kChunk};
  // As load_b<Order::ColumnsOfPanel> of row 0: places of two times 16 channels.
  const int b_row = at.lane % 8 + at.lane / 8 % 2 * 8;
  const uint32_t first = panel_offset(b_row, at.part * 32 + at.lane / 16 * 8, kChunk) + base;
  const uint32_t rows[2] = {first, first ^ 32U};
  {
    // As load_a of column 0.
    const uint32_t a_at = scores.at(at.tile * kTile + at.lane % 16, at.lane / 16 * 8);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      if (kDiagonal == Diagonal::Product ? j <= at.tile : j < at.tile) {
        uint32_t a[2][4];
        uint32_t b[2][4];
        const uint32_t a_tile = a_at ^ static_cast<uint32_t>(j * 32);
        ldmatrix(a[0], a_tile);
        ldmatrix(a[1], a_tile + to_keys);
        ldmatrix_transposed(b[0], rows[0] + (S::kColumns + j * tile_rows));
        ldmatrix_transposed(b[1], rows[1] + (S::kColumns + j * tile_rows));
        pass_tile<D>(acc_q, shared, j, at.channel);
        pass_tile<D>(acc_k, shared, j, at.channel);
        add_rows<kFormat>(acc_q, a[0], b);
        add_rows<kFormat>(acc_k, a[1], b);
      }
    }
  }
  // As load_a_transposed of row 0.
  const uint32_t a_at = scores.at(at.lane % 8 + at.lane / 16 * 8, at.tile * kTile + at.lane / 8 % 2 * 8);
#pragma unroll
  for (int i = kTiles - 1; i >= 0; --i) {
    if (kDiagonal == Diagonal::Product ? i >= at.tile : i > at.tile) {
      uint32_t a[2][4];
      uint32_t b[2][4];
      ldmatrix_transposed(a[0], a_at + i * tile_rows);
      ldmatrix_transposed(a[1], a_at + i * tile_rows + to_keys);
      ldmatrix_transposed(b[0], rows[0] + (S::kQueries + i * tile_rows));
      ldmatrix_transposed(b[1], rows[1] + (S::kQueries + i * tile_rows));
      if (i < kTiles - 1) {
        pass_tile<D>(col, shared, kDiagonal == Diagonal::Product ? i + 1 : i, at.channel);
      }
      add_rows<kFormat>(col, a[0], b);
      ldmatrix_transposed(b[0], rows[0] + (S::kKeys + i * tile_rows));
      ldmatrix_transposed(b[1], rows[1] + (S::kKeys + i * tile_rows));
      add_rows<kFormat>(col, a[1], b);
    }
  }
}

}  // namespace longhaul::kda::cuda
