// The smaller parts of a chunk's gradients (gradients.cuh): sums over the state, gradients of values, tiles of scores and products
// with them, sums over rows for dg.
#pragma once

#include "kernels/kda/cuda/gradient_factors.cuh"

namespace longhaul::kda::cuda {

// Sums of S dS' over the value columns, by channels: parts of the sums in kInner.
template <int D>
__device__ __forceinline__ void sum_states(unsigned char* shared, int thread) {
  using S = GradientShared<D>;
  const int channel = thread % (D / 2) * 2;
  const int group = thread / (D / 2);
  constexpr int rows = D / S::kGroups;
  float sum[2] = {};
#pragma unroll 4
  for (int r = 0; r < rows; ++r) {
    const uint32_t at = panel_offset(group * rows + r, channel, D);
    const uint32_t s = *reinterpret_cast<const uint32_t*>(shared + S::kStates + at);
    const uint32_t d = *reinterpret_cast<const uint32_t*>(shared + S::kStateGradients + at);
    sum[0] += low_of<kKept<D>>(s) * low_of<kKept<D>>(d);
    sum[1] += high_of<kKept<D>>(s) * high_of<kKept<D>>(d);
  }
  *reinterpret_cast<float2*>(shared + S::kInner + (group * D + channel) * 4) = make_float2(sum[0], sum[1]);
}

// dv = beta dR, and <dR, v>. A thread has 16 columns of a row, of which it fetches the values early.
template <int D>
struct ValueGradients {
  using S = GradientShared<D>;
  static constexpr int kRowThreads = S::kThreads / kChunk;
  static constexpr int kColumns = D / kRowThreads;
  static_assert(kColumns == 16);
  uint4 v[2];

  __device__ __forceinline__ void fetch(const GradientParams& p, const ChunkEntry& chunk, int head, int thread) {
    const int row = min(thread / kRowThreads, chunk.rows - 1);
    const uint16_t* from = p.v + (chunk.first_token + row) * p.v_stride + head * D + thread % kRowThreads * kColumns;
    v[0] = *reinterpret_cast<const uint4*>(from);
    v[1] = *reinterpret_cast<const uint4*>(from + 8);
  }

  __device__ __forceinline__ void write(const GradientParams& p, const ChunkEntry& chunk, int head, unsigned char* shared,
                                        int thread) const {
    const int row = thread / kRowThreads;
    const int column = thread % kRowThreads * kColumns;
    const float beta = reinterpret_cast<const float*>(shared + S::kBeta)[row];
    float* to = p.dv + ((chunk.first_token + row) * p.in.heads + head) * D + column;
    float sum = 0.0F;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 d = *reinterpret_cast<const uint4*>(shared + S::kResidualGradients + panel_offset(row, column + 8 * half, kChunk));
      constexpr Format format = kKept<D>;
      float r[8] = {low_of<format>(d.x), high_of<format>(d.x), low_of<format>(d.y), high_of<format>(d.y),
                    low_of<format>(d.z), high_of<format>(d.z), low_of<format>(d.w), high_of<format>(d.w)};
      if constexpr (Factors<D>::kAny) {
        const auto* factors = reinterpret_cast<const float*>(shared + S::kFactors) + Factors<D>::kOfValues + column + 8 * half;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          r[i] *= factors[i];
        }
      }
      const uint4 x = v[half];
      sum += r[0] * bf16_low(x.x) + r[1] * bf16_high(x.x) + r[2] * bf16_low(x.y) + r[3] * bf16_high(x.y);
      sum += r[4] * bf16_low(x.z) + r[5] * bf16_high(x.z) + r[6] * bf16_low(x.w) + r[7] * bf16_high(x.w);
      if (row < chunk.rows) {
        *reinterpret_cast<float4*>(to + 8 * half) = make_float4(beta * r[0], beta * r[1], beta * r[2], beta * r[3]);
        *reinterpret_cast<float4*>(to + 8 * half + 4) = make_float4(beta * r[4], beta * r[5], beta * r[6], beta * r[7]);
      }
    }
#pragma unroll
    for (int mask = 1; mask < kRowThreads; mask *= 2) {
      sum += shuffle_xor(sum, mask);
    }
    if (thread % kRowThreads == 0) {
      reinterpret_cast<float*>(shared + S::kBetaSums)[row] = sum;
    }
  }
};

// A tile of dA or dL to the panels of its two bf16 values; dA's diagonal apart.
template <int D>
__device__ __forceinline__ void put_scores(const float (&d)[8], unsigned char* shared, bool is_queries, int tile, int column_tile,
                                           int lane) {
  using S = GradientShared<D>;
  const int which = is_queries ? 0 : panel_bytes(kChunk, kChunk);
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const int row = tile * kTile + lane / 4 + i / 2 % 2 * 8;
    const int column = column_tile * kTile + lane % 4 * 2 + i / 4 * 8;
    float x[2] = {d[i], d[i + 1]};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (is_queries && column + j == row) {
        reinterpret_cast<float*>(shared + S::kDiagonal)[row] = x[j];
      }
      x[j] = column + j < row ? (is_queries ? x[j] : -x[j]) : 0.0F;
    }
    const uint32_t high = pack_bf16(x[0], x[1]);
    const uint32_t at = panel_offset(row, column, kChunk) + static_cast<uint32_t>(which);
    *reinterpret_cast<uint32_t*>(shared + S::kScores + at) = high;
    *reinterpret_cast<uint32_t*>(shared + S::kOutputs + at) = pack_bf16(x[0] - bf16_low(high), x[1] - bf16_high(high));
  }
}

// d [16, 32] += the 16 x 16 tile (row tile, column tile) of dA or dL, transposed for kTransposed, times 16 rows of a panel.
template <int D, bool kTransposed>
__device__ __forceinline__ void add_scores(float (&d)[16], uint32_t base, bool is_queries, int row_tile, int column_tile, Panel rows,
                                           int first_channel, int lane) {
  using S = GradientShared<D>;
  const auto which = static_cast<uint32_t>(is_queries ? 0 : panel_bytes(kChunk, kChunk));
  const Panel high{base + S::kScores + which, kChunk};
  const Panel low{base + S::kOutputs + which, kChunk};
  uint32_t a[4];
  uint32_t rest[4];
  if constexpr (kTransposed) {
    load_a_transposed(a, high, row_tile * kTile, column_tile * kTile, lane);
    load_a_transposed(rest, low, row_tile * kTile, column_tile * kTile, lane);
  } else {
    load_a(a, high, row_tile * kTile, column_tile * kTile, lane);
    load_a(rest, low, row_tile * kTile, column_tile * kTile, lane);
  }
  const int contracted = kTransposed ? row_tile : column_tile;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    uint32_t b[4];
    load_b<Order::ColumnsOfPanel>(b, rows, contracted * kTile, first_channel + 16 * n, lane);
    mma_bf16(d + 8 * n, a, b[0], b[1]);
    mma_bf16(d + 8 * n + 4, a, b[2], b[3]);
    mma_bf16(d + 8 * n, rest, b[0], b[1]);
    mma_bf16(d + 8 * n + 4, rest, b[2], b[3]);
  }
}

// x times the decay from one tile to the next, by channels.
template <int D>
__device__ __forceinline__ void pass_tile(float (&x)[16], const unsigned char* shared, int step, int first_channel, int lane) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const float2 f = *reinterpret_cast<const float2*>(shared + GradientShared<D>::kSteps +
                                                      (step * D + first_channel + 8 * n + lane % 4 * 2) * 4);
    x[4 * n] *= f.x;
    x[4 * n + 1] *= f.y;
    x[4 * n + 2] *= f.x;
    x[4 * n + 3] *= f.y;
  }
}

// Sums of x [16 rows, 32 channels] over the rows from each one on (kSuffix) or before it; totals of the tile to `totals`.
template <bool kSuffix>
__device__ __forceinline__ void sum_rows(float (&x)[16], float* totals, int lane) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float& upper = x[4 * n + j];      // row g
      float& lower = x[4 * n + 2 + j];  // row g + 8
      float total[2] = {upper, lower};
      float sum[2] = {kSuffix ? upper : 0.0F, kSuffix ? lower : 0.0F};
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2) {
        const bool takes = ((lane & mask) != 0) != kSuffix;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float other = shuffle_xor(total[half], mask);
          sum[half] += takes ? other : 0.0F;
          total[half] += other;
        }
      }
      upper = kSuffix ? sum[0] + total[1] : sum[0];
      lower = kSuffix ? sum[1] : total[0] + sum[1];
      if (lane < 4) {
        totals[8 * n + j] = total[0] + total[1];
      }
    }
  }
}

}  // namespace longhaul::kda::cuda
