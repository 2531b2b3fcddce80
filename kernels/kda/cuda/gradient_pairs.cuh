// What the kernel of the gradients for gates without a bound (gradients_pairwise.cuh) does differently: where it keeps things, its
// operands, and the pairs of rows within a tile, which need no product of two decay factors.
//
// A thread of the last part has one channel of a tile and goes through its 16 rows, with fp32 registers for what each earlier row
// j has become on the way to row i: the decay E_ij and the key k_j E_ij. So decay is a product of factors e^g along the rows.
#pragma once

#include "kernels/kda/cuda/gradient_finish.cuh"
#include "kernels/kda/cuda/gradient_parts.cuh"

namespace longhaul::kda::cuda {

// On top of GradientShared: what the products leave for the last part, in place of their operands, and scores of pairs.
template <int D>
struct PairwiseShared {
  using S = GradientShared<D>;
  static constexpr int kSums = kChunk * D * 4;  // bytes of fp32 [64, D], columns permuted by the row
  static constexpr int kRowQ = S::kResiduals;
  static constexpr int kRowK = kRowQ + kSums;
  static constexpr int kCol = kRowK + kSums;
  static constexpr int kOut = S::kDecays;
  static_assert(kCol + kSums <= S::kDecays && kOut + kSums <= S::kScores);
  // Rows of dA below the diagonal of a tile, each filled up to a multiple of four; then those of dL.
  static constexpr int kTilePairs = 144;
  static constexpr int kPairs = static_cast<int>(round_up_to(S::kNorms, 16));  // fp32 [4 tiles, 2, 144]
  static constexpr int kBytes = kPairs + kTiles * 2 * kTilePairs * 4;

  [[nodiscard]] static __device__ __forceinline__ int sum_at(int row, int channel) {
    return (row * D + (channel ^ (row % 4 * 8))) * 4;
  }
  // Of the first value of a row, 1 to 15.
  [[nodiscard]] static LH_HOST_DEVICE constexpr int pairs_before(int row) {
    const int block = (row - 1) / 4;
    return 8 * block * (block + 1) + (row - 1) % 4 * 4 * (block + 1);
  }
};

// The chunk's states and their gradients, for which its barrier waits, then its rows of both walks; one thread.
template <int D>
__device__ __forceinline__ void fetch_state_panels(const GradientParams& p, int64_t item, uint32_t base) {
  using S = GradientShared<D>;
  constexpr uint32_t state_bytes = panel_bytes(D, D);
  const uint32_t barrier = base + S::kBarrier;
  mbarrier_arrive_expect(barrier, 2 * state_bytes + 2 * static_cast<uint32_t>(panel_bytes(kChunk, D)));
  bulk_load(base + S::kStates, p.states + item * state_bytes, state_bytes, barrier);
  bulk_load(base + S::kStateGradients, p.state_gradients + item * state_bytes, state_bytes, barrier);
}
template <int D>
__device__ __forceinline__ void fetch_row_panels(const GradientParams& p, int64_t item, uint32_t base) {
  using S = GradientShared<D>;
  constexpr uint32_t row_bytes = panel_bytes(kChunk, D);
  const uint32_t barrier = base + S::kBarrier;
  bulk_load(base + S::kResiduals, p.residuals + item * row_bytes, row_bytes, barrier);
  bulk_load(base + S::kResidualGradients, p.residual_gradients + item * row_bytes, row_bytes, barrier);
}

// Operands of the products below the diagonal, from q, k and g: queries and keys decayed from their tile's start to their row (of
// rows), keys from their row to the tile's end (of columns); all factors are at most 1. By all threads, two channels and eight
// rows each. Also the decay over each tile (kSteps) and from its end to the chunk's (kEnds).
template <int D>
__device__ __forceinline__ void form_decayed(const GradientParams& p, const ChunkEntry& chunk, int head, const Factors<D>& factors,
                                             unsigned char* shared, int thread) {
  using S = GradientShared<D>;
  constexpr int rows = S::kGroupRows;
  const int channel = thread % (D / 2) * 2;
  const int group = thread / (D / 2);
  const int at_channel = head * D + channel;
  const uint16_t* q_at = p.in.q + chunk.first_token * p.in.q_stride + at_channel;
  const uint16_t* k_at = p.in.k + chunk.first_token * p.in.k_stride + at_channel;
  const float* g_at = p.in.g + chunk.first_token * p.in.g_stride + at_channel;
  uint32_t q[rows];
  uint32_t k[rows];
  float2 f[rows];
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const int row = min(group * rows + r, chunk.rows - 1);
    f[r] = *reinterpret_cast<const float2*>(g_at + row * p.in.g_stride);
    q[r] = *reinterpret_cast<const uint32_t*>(q_at + row * p.in.q_stride);
    k[r] = *reinterpret_cast<const uint32_t*>(k_at + row * p.in.k_stride);
  }
  if (thread < kChunk) {
    const float beta = thread < chunk.rows ? p.in.beta[(chunk.first_token + thread) * p.in.heads + head] : 0.0F;
    reinterpret_cast<float*>(shared + S::kBeta)[thread] = beta;
  }
  float2 product = make_float2(1.0F, 1.0F);
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const bool inside = group * rows + r < chunk.rows;
    q[r] = inside ? q[r] : 0U;
    k[r] = inside ? k[r] : 0U;
    f[r].x = inside ? exp2_fast(kLog2E * f[r].x) : 1.0F;
    f[r].y = inside ? exp2_fast(kLog2E * f[r].y) : 1.0F;
    product = make_float2(product.x * f[r].x, product.y * f[r].y);
  }
  auto* products = reinterpret_cast<float*>(shared + S::kLogs) + channel;
  *reinterpret_cast<float2*>(products + group * D) = product;
  factors.share(shared, thread);
  sync_block();
  const auto product_of = [&](int g) { return *reinterpret_cast<const float2*>(products + g * D); };
  if (group < kTiles) {
    // `group` as a tile.
    float2 end = make_float2(1.0F, 1.0F);
#pragma unroll
    for (int g = 2; g < S::kGroups; ++g) {
      const float2 x = product_of(g);
      end.x *= g / 2 > group ? x.x : 1.0F;
      end.y *= g / 2 > group ? x.y : 1.0F;
    }
    const float2 first = product_of(2 * group);
    const float2 second = product_of(2 * group + 1);
    *reinterpret_cast<float2*>(shared + S::kSteps + (group * D + channel) * 4) = make_float2(first.x * second.x, first.y * second.y);
    *reinterpret_cast<float2*>(shared + S::kEnds + (group * D + channel) * 4) = end;
  }
  const auto* beta = reinterpret_cast<const float*>(shared + S::kBeta);
  const float2 other = product_of(group ^ 1);
  const bool is_second = group % 2 == 1;
  // Rows of a group share nothing but their slab: the swizzle permutes them.
  const uint32_t at_panel = panel_offset(group * rows, channel, kChunk);
  const auto at_row = [&](int r) { return (at_panel ^ static_cast<uint32_t>(r * 16)) + static_cast<uint32_t>(r * kSlabRowBytes); };
  float2 since = is_second ? other : make_float2(1.0F, 1.0F);
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    since = make_float2(since.x * f[r].x, since.y * f[r].y);
    const float of_beta = beta[group * rows + r];
    *reinterpret_cast<uint32_t*>(shared + S::kQueries + at_row(r)) =
        pack_bf16(bf16_low(q[r]) * (p.in.scale * since.x), bf16_high(q[r]) * (p.in.scale * since.y));
    *reinterpret_cast<uint32_t*>(shared + S::kKeys + at_row(r)) =
        pack_bf16(bf16_low(k[r]) * (of_beta * since.x), bf16_high(k[r]) * (of_beta * since.y));
  }
  float2 until = is_second ? make_float2(1.0F, 1.0F) : other;
#pragma unroll
  for (int r = rows - 1; r >= 0; --r) {
    *reinterpret_cast<uint32_t*>(shared + S::kColumns + at_row(r)) = pack_bf16(bf16_low(k[r]) * until.x, bf16_high(k[r]) * until.y);
    until = make_float2(until.x * f[r].x, until.y * f[r].y);
  }
}

// A diagonal tile of dA or dL, in the unit, as pairs, and dA's diagonal.
template <int D>
__device__ __forceinline__ void put_pairs(const float (&d)[8], float unit, unsigned char* shared, bool is_queries, const TilePlace& at) {
  using S = GradientShared<D>;
  using P = PairwiseShared<D>;
  auto* to = reinterpret_cast<float*>(shared + P::kPairs) + (2 * at.tile + (is_queries ? 0 : 1)) * P::kTilePairs;
  const float signed_unit = is_queries ? unit : -unit;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = at.lane / 4 + i / 2 % 2 * 8;
    const int column = at.lane % 4 * 2 + i % 2 + i / 4 * 8;
    if (column < row) {
      to[P::pairs_before(row) + column] = signed_unit * d[i];
    } else if (is_queries && column == row) {
      reinterpret_cast<float*>(shared + S::kDiagonal)[at.tile * kTile + row] = signed_unit * d[i];
    }
  }
}

// A warp's sums [16 rows, 32 channels] for the last part.
template <int D>
__device__ __forceinline__ void put_sums(const float (&x)[16], unsigned char* to, const TilePlace& at) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<float2*>(to + PairwiseShared<D>::sum_at(at.row(half), at.channel + 8 * n)) =
          make_float2(x[4 * n + 2 * half], x[4 * n + 2 * half + 1]);
    }
  }
}

[[nodiscard]] __device__ __forceinline__ float rounded_to_bf16(float x) { return bf16_low(pack_bf16(x, 0.0F)); }

// One channel of a tile: the pairs within the tile, and everything that follows for the gradients of q and k. Leaves in kRowQ
// what dbeta sums over channels, and in `dg` this tile's part of the gradient of the gates.
template <int D>
struct ChannelGradients {
  using S = GradientShared<D>;
  using P = PairwiseShared<D>;
  float g[kTile];      // beyond the chunk's rows the last one's, as of q and k
  uint16_t q[kTile];
  uint16_t k[kTile];
  float dg[kTile];

  // Early, before a barrier: all loads together.
  __device__ __forceinline__ void fetch(const GradientParams& p, const ChunkEntry& chunk, int head, int tile, int channel);
  __device__ __forceinline__ void compute(const GradientParams& p, const ChunkEntry& chunk, int head, unsigned char* shared,
                                          int tile, int channel);
  // What later tiles' rows and earlier tiles' columns add, after a barrier.
  __device__ __forceinline__ void write(const GradientParams& p, const ChunkEntry& chunk, int head, const unsigned char* shared,
                                        int tile, int channel) const;
};

template <int D>
__device__ __forceinline__ void ChannelGradients<D>::fetch(const GradientParams& p, const ChunkEntry& chunk, int head, int tile,
                                                           int channel) {
  const uint16_t* q_at = p.in.q + chunk.first_token * p.in.q_stride + head * D + channel;
  const uint16_t* k_at = p.in.k + chunk.first_token * p.in.k_stride + head * D + channel;
  const float* g_at = p.in.g + chunk.first_token * p.in.g_stride + head * D + channel;
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const int row = min(tile * kTile + i, chunk.rows - 1);
    g[i] = g_at[row * p.in.g_stride];
    q[i] = q_at[row * p.in.q_stride];
    k[i] = k_at[row * p.in.k_stride];
  }
}

template <int D>
__device__ __forceinline__ void ChannelGradients<D>::compute(const GradientParams& p, const ChunkEntry& chunk, int head,
                                                             unsigned char* shared, int tile, int channel) {
  const int first = tile * kTile;
  const int rows = chunk.rows - first;  // may be more than the tile has, or none
  const int64_t out_at = ((chunk.first_token + first) * p.in.heads + head) * D + channel;
  const int64_t out_stride = static_cast<int64_t>(p.in.heads) * D;
  const auto* beta = reinterpret_cast<const float*>(shared + S::kBeta) + first;
  const auto* diagonal = reinterpret_cast<const float*>(shared + S::kDiagonal) + first;
  const auto* pairs = reinterpret_cast<const float*>(shared + P::kPairs) + 2 * tile * P::kTilePairs;
  const auto sum = [&](int what, int row) -> float& {
    return *reinterpret_cast<float*>(shared + what + P::sum_at(first + row, channel));
  };
  float decay[kTile];  // of each earlier row up to row i
  float key[kTile];    // its key, decayed as much
  float col[kTile];
  float since = 1.0F;  // decay since the tile's start
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const bool inside = i < rows;
    const float f = inside ? exp2_fast(kLog2E * g[i]) : 1.0F;
    const float key_i = inside ? bf16_low(k[i]) : 0.0F;
    const float query_i = inside ? bf16_low(q[i]) : 0.0F;
    const float of_beta = beta[i];
    const float query = p.in.scale * query_i;
    const float beta_key = of_beta * key_i;
    float of_q = 0.0F;
    float of_k = 0.0F;
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 a4 = *reinterpret_cast<const float4*>(pairs + P::pairs_before(i > 0 ? i : 1) + j);
      const float4 l4 = *reinterpret_cast<const float4*>(pairs + P::kTilePairs + P::pairs_before(i > 0 ? i : 1) + j);
      const float a[4] = {a4.x, a4.y, a4.z, a4.w};
      const float l[4] = {l4.x, l4.y, l4.z, l4.w};
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        if (j + m < i) {
          decay[j + m] *= f;
          key[j + m] *= f;
          of_q += a[m] * key[j + m];
          of_k += l[m] * key[j + m];
          col[j + m] += (a[m] * query + l[m] * beta_key) * decay[j + m];
        }
      }
    }
    decay[i] = 1.0F;
    key[i] = key_i;
    col[i] = 0.0F;
    since *= f;
    const float far_q = sum(P::kRowQ, i);
    const float far_k = sum(P::kRowK, i);
    const float row_q = since * far_q + of_q;
    const float row_k = since * far_k + of_k;
    const float self = diagonal[i];
    if (inside) {
      static_cast<float*>(p.dq)[out_at + i * out_stride] = p.in.scale * (row_q + self * key_i);
    }
    sum(P::kRowQ, i) = key_i * row_k;
    sum(P::kRowK, i) = of_beta * row_k + self * query;
    // With the operands as the products had them, so that a pair's two halves cancel where both are in a sum.
    dg[i] = rounded_to_bf16(query_i * (p.in.scale * since)) * far_q + rounded_to_bf16(key_i * (of_beta * since)) * far_k +
            (query * of_q + beta_key * of_k);
  }
  const float to_end = *reinterpret_cast<const float*>(shared + S::kEnds + (tile * D + channel) * 4);
  float left = 0.0F;  // of out over the rows so far
#pragma unroll
  for (int j = 0; j < kTile; ++j) {
    const float key_j = j < rows ? bf16_low(k[j]) : 0.0F;
    const float far = sum(P::kCol, j);
    const float leaving = decay[j] * to_end * sum(P::kOut, j);
    if (j < rows) {
      static_cast<float*>(p.dk)[out_at + j * out_stride] = sum(P::kRowK, j) + (decay[j] * far + col[j]) + leaving;
    }
    dg[j] -= rounded_to_bf16(key_j * decay[j]) * far + key_j * col[j];
    col[j] = left;
    left += key_j * leaving;
  }
  float after = 0.0F;
#pragma unroll
  for (int j = kTile - 1; j >= 0; --j) {
    after += dg[j];
    dg[j] = after + col[j];
  }
  auto* sums = reinterpret_cast<float*>(shared + S::kInner) + channel;  // fp32 [2, 4, K] of dg
  sums[tile * D] = after;
  sums[(kTiles + tile) * D] = left;
}

template <int D>
__device__ __forceinline__ void ChannelGradients<D>::write(const GradientParams& p, const ChunkEntry& chunk, int head,
                                                           const unsigned char* shared, int tile, int channel) const {
  const auto* sums = reinterpret_cast<const float*>(shared + S::kInner) + channel;
  float add = reinterpret_cast<const float*>(shared + S::kStateSum)[channel];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const float other = sums[(t < tile ? kTiles + t : t) * D];
    add += t != tile ? other : 0.0F;
  }
  const int rows = chunk.rows - tile * kTile;
  float* to = static_cast<float*>(p.dg) + ((chunk.first_token + tile * kTile) * p.in.heads + head) * D + channel;
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    if (i < rows) {
      to[static_cast<int64_t>(i) * p.in.heads * D] = dg[i] + add;
    }
  }
}

// dbeta = <dR, v> + <k, row_k>, of which kRowQ has the terms; a warp has some of the rows.
template <int D>
__device__ __forceinline__ void write_beta_gradients(const GradientParams& p, const ChunkEntry& chunk, int head,
                                                     const unsigned char* shared, int thread) {
  using S = GradientShared<D>;
  using P = PairwiseShared<D>;
  const int lane = thread % 32;
#pragma unroll
  for (int i = 0; i < kChunk / S::kWarps; ++i) {
    const int row = thread / 32 * (kChunk / S::kWarps) + i;
    float sum = 0.0F;
#pragma unroll
    for (int c = 0; c < D; c += 32) {
      sum += *reinterpret_cast<const float*>(shared + P::kRowQ + P::sum_at(row, c + lane));
    }
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) {
      sum += shuffle_xor(sum, mask);
    }
    if (lane == 0 && row < chunk.rows) {
      static_cast<float*>(p.dbeta)[(chunk.first_token + row) * p.in.heads + head] = sum + reinterpret_cast<const float*>(shared + S::kBetaSums)[row];
    }
  }
}

}  // namespace longhaul::kda::cuda
