// Gradients of a chunk's inputs, one block a chunk and head, once the states entering and the gradients leaving every chunk
// are known (kernels/kda/README.md has the derivation). With S entering, dS' leaving, Vt, dR and dO:
//   dA = tril(dO Vt^T)          dL = -stril(dR Vt^T)
//   row_q_i = e^{G_i} (S dO_i)  + sum_{j<i} dA_ij k_j E_ij          col_j = sum_{i>j} (dA_ij scale q_i + beta_i dL_ij k_i) E_ij
//   row_k_i = -e^{G_i} (S dR_i) + sum_{j<i} dL_ij k_j E_ij          out_j = e^{G_C - G_j} (dS' Vt_j)
//   dq_i = scale (row_q_i + dA_ii k_i)                              dk_i = beta_i row_k_i + col_i + out_i + dA_ii scale q_i
//   dv_i = beta_i dR_i                                              dbeta_i = <dR_i, v_i> + <k_i, row_k_i>
//   dg_t = sum_{i>=t} (scale q_i row_q_i + k_i (beta_i row_k_i - col_i)) + sum_{j<t} k_j out_j + e^{G_C} rowsum(S dS')
// The pair i = j is no part of dg: E_ii = 1 has no derivative.
//
// E_ij = 2^{F_i} 2^{P_I - P_J} 2^{-F_j} for rows of tiles I and J, P the position of a tile's first row and F the decay from
// there. Operands carry 2^{F_i} and 2^{-F_j} (row 0 of a tile is the anchor, which lies in the past), each times 2^{+-54}
// so that both stay in the middle of the range of bf16; the accumulators take the decay between tiles as they pass them.
// dA and dL go into products as two bf16 values each, the second what the rounding of the first left.
//
// A warp has 16 rows and 32 channels. Shared memory of the states is free for the next chunk's as soon as the products with
// them are done, and fills while the rest is computed.
#pragma once

#include "kernels/kda/cuda/products.cuh"
#include "kernels/kda/cuda/tile_share.cuh"
#include "kernels/kda/cuda/walk_stages.cuh"

namespace longhaul::kda::cuda {

struct GradientParams {
  InputParams in;
  Tables tables;
  int documents;
  const uint16_t* v;                        // bf16 [tokens, heads, V]
  int64_t v_stride;                         // elements between tokens
  const uint16_t* d_o;                      // bf16 [tokens, heads, V]
  int64_t d_o_stride;
  const unsigned char* states;              // panels [V, K] of S^T, [chunks, heads] (walk_stages.cuh)
  const unsigned char* residuals;           // panels [64, V] of Vt
  const float* factors;                     // [V] of both
  const unsigned char* state_gradients;     // panels [V, K] of dS'^T
  const unsigned char* residual_gradients;  // panels [64, V] of dR
  const float* gradient_factors;            // [V] of both
  float* dq;                                // [tokens, heads, K]
  float* dk;
  float* dv;                                // [tokens, heads, V]
  float* dg;
  float* dbeta;                             // [tokens, heads]
};

template <int D>
struct GradientShared {
  static constexpr int kThreads = 4 * D;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kParts = D / 32;  // of the channels, a warp each
  static constexpr int kGroups = 8;      // of the rows, where a thread has two channels
  static constexpr int kGroupRows = kChunk / kGroups;
  static constexpr int kStates = 0;                                             // 16 bits [V, K]
  static constexpr int kStateGradients = kStates + panel_bytes(D, D);           // 16 bits [V, K]
  static constexpr int kResiduals = kStateGradients + panel_bytes(D, D);        // 16 bits [64, V]
  static constexpr int kResidualGradients = kResiduals + panel_bytes(kChunk, D);  // 16 bits [64, V]
  static constexpr int kFetched = kResidualGradients + panel_bytes(kChunk, D);
  static constexpr int kOutputs = kFetched;                                     // bf16 [64, V] dO; then what is left of dA, dL
  static constexpr int kColumns = kOutputs + 2 * panel_bytes(kChunk, kChunk);   // bf16 [64, K] k 2^{-F-54}
  static constexpr int kQueries = kColumns + panel_bytes(kChunk, D);            // bf16 [64, K] scale q 2^{F+54}
  static constexpr int kKeys = kQueries + panel_bytes(kChunk, D);               // bf16 [64, K] beta k 2^{F+54}
  static constexpr int kDecayRow = 4 * D + 32;
  static constexpr int kDecays = kKeys + panel_bytes(kChunk, D);                // fp32 [64, K] 2^F
  static constexpr int kScores = kDecays + kChunk * kDecayRow;                  // bf16 [64, 64] dA, dL
  static constexpr int kLogs = kScores;                                         // fp32 [8, 2, K] before dA
  // fp32 [4, K] decay to the first row of a tile: from the chunk's start for tile 0, from that of the tile before else.
  static constexpr int kSteps = kScores + 2 * panel_bytes(kChunk, kChunk);
  static constexpr int kEnds = kSteps + kTiles * D * 4;                         // fp32 [4, K] 2^{54 + G_C - P} of tiles
  static constexpr int kSums = kEnds + kTiles * D * 4;                          // fp32 [2, 4, K] of dg, by tiles
  static constexpr int kInner = kSums;                                          // fp32 [8, K] of S dS', before
  static constexpr int kStateSum = kSums + 8 * D * 4;                           // fp32 [K]
  static constexpr int kBeta = kStateSum + D * 4;                               // fp32 [64]
  static constexpr int kDiagonal = kBeta + kChunk * 4;                          // fp32 [64] dA_ii
  static constexpr int kBetaSums = kDiagonal + kChunk * 4;                      // fp32 [1 + parts, 64]
  static constexpr int kFactors = kBetaSums + (1 + kParts) * kChunk * 4;        // fp32 [3, V], see Factors
  static constexpr int kBarrier = kFactors + 3 * D * 4 + 16;
  static constexpr int kBytes = kBarrier + 16;
  static_assert(panel_bytes(kChunk, D) <= 2 * panel_bytes(kChunk, kChunk));
  static_assert(kGroups * 2 * D * 4 <= 2 * panel_bytes(kChunk, kChunk));
};

inline constexpr float kMiddle = 54.0F;
inline constexpr float kUp = 18014398509481984.0F;  // 2^54
inline constexpr float kDown = 1.0F / kUp;

// dO into its panel, in the background; rows beyond the chunk become zeros.
template <int D>
__device__ __forceinline__ void fetch_outputs(const GradientParams& p, const ChunkEntry& chunk, int head, uint32_t base, int thread) {
  using S = GradientShared<D>;
  constexpr int pieces = D / 8;
  const Panel to{base + S::kOutputs, kChunk};
  const int column = thread % pieces * 8;
  const uint16_t* from = p.d_o + chunk.first_token * p.d_o_stride + head * D + column;
#pragma unroll
  for (int i = 0; i < kChunk * pieces / S::kThreads; ++i) {
    const int row = thread / pieces + i * (S::kThreads / pieces);
    copy_16(to.at(row, column), from + (row < chunk.rows ? row * p.d_o_stride : 0), row >= chunk.rows);
  }
}

// What the walks left has a factor a value column (walk_stages.cuh), over which products sum, so that all columns must come
// to one unit: the largest of the products of the two walks' factors. States and residuals stay as they are, dO takes their
// factors, and gradients are made smaller where theirs is another. With bf16 everything is in its own unit.
template <int D>
struct Factors {
  using S = GradientShared<D>;
  static constexpr bool kAny = kKept<D> == Format::F16;
  static constexpr int kOfOutputs = 0;         // [V] for dO
  static constexpr int kOfGradients = D;       // [V] for dS' and dR
  static constexpr int kOfValues = 2 * D;      // [V] from dR in the unit to dR
  float forward = 1.0F;
  float backward = 1.0F;

  // A thread a value column.
  __device__ __forceinline__ void fetch(const GradientParams& p, int64_t item, int thread) {
    if constexpr (kAny) {
      if (thread < D) {
        forward = p.factors[item * D + thread];
        backward = p.gradient_factors[item * D + thread];
      }
    }
  }
  // The largest of each warp, before a barrier.
  __device__ __forceinline__ void compare(unsigned char* shared, int thread) const {
    if constexpr (kAny) {
      if (thread < D) {
        float largest = forward * backward;
#pragma unroll
        for (int mask = 1; mask < 32; mask *= 2) {
          largest = max(largest, shuffle_xor(largest, mask));
        }
        reinterpret_cast<float*>(shared + S::kFactors)[3 * D + thread / 32] = largest;
      }
    }
  }
  [[nodiscard]] static __device__ __forceinline__ float unit(const unsigned char* shared) {
    if constexpr (kAny) {
      const float4 x = *reinterpret_cast<const float4*>(shared + S::kFactors + 3 * D * 4);
      return max(max(x.x, x.y), max(x.z, x.w));
    }
    return 1.0F;
  }
  // After that barrier, before another one.
  __device__ __forceinline__ void write(unsigned char* shared, int thread) const {
    if constexpr (kAny) {
      if (thread < D) {
        const float one = unit(shared);
        auto* to = reinterpret_cast<float*>(shared + S::kFactors) + thread;
        to[kOfOutputs] = forward / one;
        to[kOfGradients] = forward * backward / one;
        to[kOfValues] = one / forward;
      }
    }
  }
  // Eight values of neighbouring columns times their factors. From bf16 for dO.
  template <Format kFrom>
  static __device__ __forceinline__ void scale_piece(unsigned char* piece, const float* factors) {
    auto* at = reinterpret_cast<uint4*>(piece);
    uint4 x = *at;
    const float4 a = *reinterpret_cast<const float4*>(factors);
    const float4 b = *reinterpret_cast<const float4*>(factors + 4);
    const auto scaled = [](uint32_t pair, float low, float high) {
      return kFrom == Format::F16 ? pack_f16(f16_low(pair) * low, f16_high(pair) * high)
                                  : pack_f16(bf16_low(pair) * low, bf16_high(pair) * high);
    };
    x.x = scaled(x.x, a.x, a.y);
    x.y = scaled(x.y, a.z, a.w);
    x.z = scaled(x.z, b.x, b.y);
    x.w = scaled(x.w, b.z, b.w);
    *at = x;
  }
  // Brings dO, dR and dS' to the unit. All threads; the last two only where some factor is not 1.
  static __device__ __forceinline__ void apply(unsigned char* shared, int thread) {
    if constexpr (kAny) {
      const auto* factors = reinterpret_cast<const float*>(shared + S::kFactors);
      constexpr int pieces = D / 8;
      const int column = thread % pieces * 8;
      bool all_one = true;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        all_one = all_one && factors[kOfGradients + thread % 32 * 4 + c] == 1.0F;
      }
      const bool rescales = any_lane(!all_one);
#pragma unroll
      for (int i = 0; i < kChunk * pieces / S::kThreads; ++i) {
        const int row = thread / pieces + i * (S::kThreads / pieces);
        const uint32_t at = panel_offset(row, column, kChunk);
        scale_piece<Format::Bf16>(shared + S::kOutputs + at, factors + kOfOutputs + column);
        if (rescales) {
          scale_piece<Format::F16>(shared + S::kResidualGradients + at, factors + kOfGradients + column);
        }
      }
      if (rescales) {
#pragma unroll 1
        for (int i = thread; i < D * pieces; i += S::kThreads) {
          // A row of the panel is a value column.
          const float f = factors[kOfGradients + i / pieces];
          auto* piece = reinterpret_cast<uint32_t*>(shared + S::kStateGradients + panel_offset(i / pieces, i % pieces * 8, D));
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            piece[w] = pack_f16(f16_low(piece[w]) * f, f16_high(piece[w]) * f);
          }
        }
      }
    }
  }
};

template <Format kFormat>
__device__ __forceinline__ float low_of(uint32_t pair) {
  return kFormat == Format::F16 ? f16_low(pair) : bf16_low(pair);
}
template <Format kFormat>
__device__ __forceinline__ float high_of(uint32_t pair) {
  return kFormat == Format::F16 ? f16_high(pair) : bf16_high(pair);
}

// What the walks left of a chunk and head; one thread.
template <int D>
__device__ __forceinline__ void fetch_states(const GradientParams& p, int64_t item, uint32_t base) {
  using S = GradientShared<D>;
  constexpr uint32_t state_bytes = panel_bytes(D, D);
  constexpr uint32_t row_bytes = panel_bytes(kChunk, D);
  const uint32_t barrier = base + S::kBarrier;
  mbarrier_arrive_expect(barrier, 2 * state_bytes + 2 * row_bytes);
  bulk_load(base + S::kResiduals, p.residuals + item * row_bytes, row_bytes, barrier);
  bulk_load(base + S::kResidualGradients, p.residual_gradients + item * row_bytes, row_bytes, barrier);
  bulk_load(base + S::kStates, p.states + item * state_bytes, state_bytes, barrier);
  bulk_load(base + S::kStateGradients, p.state_gradients + item * state_bytes, state_bytes, barrier);
}

// Operands of the tiles and the decays, from q, k and g; by all threads, two channels and eight rows each.
template <int D>
__device__ __forceinline__ void form_operands(const GradientParams& p, const ChunkEntry& chunk, int head, const Factors<D>& factors,
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
  if (chunk.rows < kChunk) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const bool inside = group * rows + r < chunk.rows;
      q[r] = inside ? q[r] : 0U;
      k[r] = inside ? k[r] : 0U;
      f[r].x = inside ? f[r].x : 0.0F;
      f[r].y = inside ? f[r].y : 0.0F;
    }
  }
  // first: of the group's first row; f: from there.
  const float2 first = make_float2(kLog2E * f[0].x, kLog2E * f[0].y);
  f[0] = make_float2(0.0F, 0.0F);
#pragma unroll
  for (int r = 1; r < rows; ++r) {
    f[r].x = f[r - 1].x + kLog2E * f[r].x;
    f[r].y = f[r - 1].y + kLog2E * f[r].y;
  }
  auto* logs = reinterpret_cast<float*>(shared + S::kLogs) + channel;
  *reinterpret_cast<float2*>(logs + 2 * group * D) = first;
  *reinterpret_cast<float2*>(logs + (2 * group + 1) * D) = f[rows - 1];
  factors.compare(shared, thread);
  sync_block();
  factors.write(shared, thread);
  const auto log_at = [&](int g, int what) { return *reinterpret_cast<const float2*>(logs + (2 * g + what) * D); };
  float2 before = make_float2(0.0F, 0.0F);
  if (group % 2 == 1) {
    const float2 rest = log_at(group - 1, 1);
    before = make_float2(rest.x + first.x, rest.y + first.y);
  }
  if (group < kTiles) {
    // `group` as a tile.
    float2 step = log_at(2 * group, 0);
    float2 end = make_float2(kMiddle, kMiddle);
#pragma unroll
    for (int g = 0; g < S::kGroups; ++g) {
      const float2 a = log_at(g, 0);
      const float2 b = log_at(g, 1);
      const bool in_tile_before = g / 2 == group - 1;
      const bool is_first = g % 2 == 0;
      step.x += in_tile_before ? b.x + (is_first ? 0.0F : a.x) : 0.0F;
      step.y += in_tile_before ? b.y + (is_first ? 0.0F : a.y) : 0.0F;
      const bool is_after = g / 2 >= group;
      end.x += is_after ? b.x + (g == 2 * group ? 0.0F : a.x) : 0.0F;
      end.y += is_after ? b.y + (g == 2 * group ? 0.0F : a.y) : 0.0F;
    }
    *reinterpret_cast<float2*>(shared + S::kSteps + (group * D + channel) * 4) = make_float2(exp2_fast(step.x), exp2_fast(step.y));
    *reinterpret_cast<float2*>(shared + S::kEnds + (group * D + channel) * 4) = make_float2(exp2_fast(end.x), exp2_fast(end.y));
  }
  const auto* beta = reinterpret_cast<const float*>(shared + S::kBeta);
  const float scale_up = kUp * p.in.scale;
  // Rows of a group share nothing but their slab: the swizzle permutes them.
  const uint32_t at_panel = panel_offset(group * rows, channel, kChunk);
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const int row = group * rows + r;
    const float decay[2] = {exp2_fast(before.x + f[r].x), exp2_fast(before.y + f[r].y)};
    const float inverse[2] = {exp2_fast(-kMiddle - before.x - f[r].x), exp2_fast(-kMiddle - before.y - f[r].y)};
    const uint32_t at = (at_panel ^ static_cast<uint32_t>(r * 16)) + static_cast<uint32_t>(r * kSlabRowBytes);
    const float of_beta = kUp * beta[row];
    *reinterpret_cast<float2*>(shared + S::kDecays + row * S::kDecayRow + channel * 4) = make_float2(decay[0], decay[1]);
    *reinterpret_cast<uint32_t*>(shared + S::kColumns + at) = pack_bf16(bf16_low(k[r]) * inverse[0], bf16_high(k[r]) * inverse[1]);
    *reinterpret_cast<uint32_t*>(shared + S::kQueries + at) =
        pack_bf16(bf16_low(q[r]) * (scale_up * decay[0]), bf16_high(q[r]) * (scale_up * decay[1]));
    *reinterpret_cast<uint32_t*>(shared + S::kKeys + at) =
        pack_bf16(bf16_low(k[r]) * (of_beta * decay[0]), bf16_high(k[r]) * (of_beta * decay[1]));
  }
}

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

// Lines of a chunk's inputs into the second-level cache, for the block's next turn.
template <int D>
__device__ __forceinline__ void prefetch_inputs(const GradientParams& p, const ChunkEntry& chunk, int head, int thread) {
  using S = GradientShared<D>;
  constexpr int lines = D / 64;  // of 128 bytes, in a row of 16-bit values
  constexpr int row_lines = 6 * lines;
  for (int i = thread; i < kChunk * row_lines; i += S::kThreads) {
    const int64_t token = chunk.first_token + min(i / row_lines, chunk.rows - 1);
    const int which = i % row_lines / lines;
    const int column = head * D + i % lines * 64;
    const void* at = p.in.q + token * p.in.q_stride + column;
    at = which == 1 ? p.in.k + token * p.in.k_stride + column : at;
    at = which == 2 ? p.v + token * p.v_stride + column : at;
    at = which == 3 ? p.d_o + token * p.d_o_stride + column : at;
    at = which == 4 ? p.in.g + token * p.in.g_stride + column : at;
    at = which == 5 ? p.in.g + token * p.in.g_stride + column + 32 : at;
    prefetch_line(at);
  }
}

template <int D>
__global__ void __launch_bounds__(GradientShared<D>::kThreads, 1) gradients_kernel(const GradientParams p) {
#if LH_KDA_SM90A
  using S = GradientShared<D>;
  unsigned char* shared = dynamic_shared();
  const uint32_t base = shared_address(shared);
  int thread = thread_index();
  const int64_t items = static_cast<int64_t>(p.tables.document_chunks[p.documents]) * p.in.heads;
  int64_t item = block_index();
  if (thread == 0) {
    mbarrier_init(base + S::kBarrier, 1);
    fence_barrier_init();
    if (item < items) {
      fetch_states<D>(p, item, base);
    }
  }
  sync_block();
  for (uint32_t parity = 0; item < items; item += grid_blocks(), parity ^= 1U) {
    const ChunkEntry chunk = p.tables.chunks[item / p.in.heads];
    const int head = static_cast<int>(item % p.in.heads);
    // Addresses are cheaper to form anew than to keep.
    forget(thread);
    {
      ValueGradients<D> values;
      fetch_outputs<D>(p, chunk, head, base, thread);
      values.fetch(p, chunk, head, thread);
      Factors<D> factors;
      factors.fetch(p, item, thread);
      form_operands<D>(p, chunk, head, factors, shared, thread);
      copies_wait();
      mbarrier_wait(base + S::kBarrier, parity);
      sync_block();
      if constexpr (Factors<D>::kAny) {
        Factors<D>::apply(shared, thread);
        sync_block();
      }
      values.write(p, chunk, head, shared, thread);
    }
    sum_states<D>(shared, thread);

    // Products with the states. A warp has a tile of rows and 32 channels.
    forget(thread);
    float acc_q[16] = {};  // of row_q, then dG
    float acc_k[16] = {};  // of row_k
    float out[16] = {};
    constexpr int tile_warps = S::kParts / 2;  // for dA, and for dL, of a row tile
    constexpr int tile_turns = kTiles / tile_warps;
    float scores[tile_turns][8] = {};
    {
      const int lane = thread % 32;
      const int tile = thread / 32 % kTiles;
      const int part = thread / 32 / kTiles;
      const ColumnCursor rows = cursor_a({base, kChunk}, tile * kTile, lane);
      const Panel first_state{base + S::kStates, D};
      const uint32_t states[2] = {first_state.at(lane % 16, part * 32 + lane / 16 * 8), first_state.at(lane % 16, part * 32 + 16 + lane / 16 * 8)};
#pragma unroll
      for (int v = 0; v < D; v += 16) {
        uint32_t a[3][4];
        ldmatrix(a[0], rows.at(v) + S::kOutputs);
        ldmatrix(a[1], rows.at(v) + S::kResidualGradients);
        ldmatrix(a[2], rows.at(v) + S::kResiduals);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          uint32_t b[4];
          ldmatrix_transposed(b, states[n] + static_cast<uint32_t>(v * kSlabRowBytes));
          mma<kKept<D>>(acc_q + 8 * n, a[0], b[0], b[1]);
          mma<kKept<D>>(acc_q + 8 * n + 4, a[0], b[2], b[3]);
          mma<kKept<D>>(acc_k + 8 * n, a[1], b[0], b[1]);
          mma<kKept<D>>(acc_k + 8 * n + 4, a[1], b[2], b[3]);
          ldmatrix_transposed(b, states[n] + static_cast<uint32_t>(v * kSlabRowBytes + S::kStateGradients - S::kStates));
          mma<kKept<D>>(out + 8 * n, a[2], b[0], b[1]);
          mma<kKept<D>>(out + 8 * n + 4, a[2], b[2], b[3]);
        }
      }
      // Tiles of dA and dL.
      const bool is_queries = part < tile_warps;
      const auto of_rows = static_cast<uint32_t>(is_queries ? S::kOutputs : S::kResidualGradients);
#pragma unroll
      for (int turn = 0; turn < tile_turns; ++turn) {
        const int column_tile = part % tile_warps + turn * tile_warps;
        if (column_tile <= tile) {
          const ColumnCursor columns = cursor_b({base + S::kResiduals, kChunk}, column_tile * kTile, lane);
#pragma unroll
          for (int v = 0; v < D; v += 16) {
            uint32_t a[4];
            uint32_t b[4];
            ldmatrix(a, rows.at(v) + of_rows);
            ldmatrix(b, columns.at(v));
            mma<kKept<D>>(scores[turn], a, b[0], b[1]);
            mma<kKept<D>>(scores[turn] + 4, a, b[2], b[3]);
          }
        }
      }
    }
    sync_block();
    forget(thread);
    const int lane = thread % 32;
    const int tile = thread / 32 % kTiles;
    const int part = thread / 32 / kTiles;
    const int channel = part * 32;
    if (item + grid_blocks() < items) {
      if (thread == 0) {
        fetch_states<D>(p, item + grid_blocks(), base);
      }
      prefetch_inputs<D>(p, p.tables.chunks[(item + grid_blocks()) / p.in.heads],
                         static_cast<int>((item + grid_blocks()) % p.in.heads), thread);
    }
    const float unit = Factors<D>::unit(shared);
#pragma unroll
    for (int turn = 0; turn < tile_turns; ++turn) {
      const int column_tile = part % tile_warps + turn * tile_warps;
      if (column_tile <= tile) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          scores[turn][i] *= unit;
        }
        put_scores<D>(scores[turn], shared, part < tile_warps, tile, column_tile, lane);
      }
    }
    if (thread < D) {
      const auto* inner = reinterpret_cast<const float*>(shared + S::kInner) + thread;
      const float decay = kDown * reinterpret_cast<const float*>(shared + S::kEnds)[thread] *
                          reinterpret_cast<const float*>(shared + S::kSteps)[thread];
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < S::kGroups; ++i) {
        sum += inner[i * D];
      }
      reinterpret_cast<float*>(shared + S::kStateSum)[thread] = sum * (decay * unit);
    }
    // Rows g and g + 8 of the tile, channels 8 n + 2 t, 8 n + 2 t + 1 of the part.
    const int lane_channel = channel + lane % 4 * 2;
    uint32_t q[8];
    uint32_t k[8];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t token = chunk.first_token + min(tile * kTile + lane / 4 + 8 * half, chunk.rows - 1);
      const uint16_t* q_at = p.in.q + token * p.in.q_stride + head * D + lane_channel;
      const uint16_t* k_at = p.in.k + token * p.in.k_stride + head * D + lane_channel;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        q[4 * half + n] = *reinterpret_cast<const uint32_t*>(q_at + 8 * n);
        k[4 * half + n] = *reinterpret_cast<const uint32_t*>(k_at + 8 * n);
      }
    }
    sync_block();

    // Products with the tiles: row_q and row_k, to which the state comes as if from a tile before; then col.
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      acc_q[i] *= unit * kDown;
      acc_k[i] *= unit * -kDown;
      out[i] *= unit;
    }
    const Panel columns{base + S::kColumns, kChunk};
    for (int j = 0; j <= tile; ++j) {
      if (j == 0) {
        pass_tile<D>(acc_q, shared, 0, channel, lane);
        pass_tile<D>(acc_k, shared, 0, channel, lane);
      }
      add_scores<D, false>(acc_q, base, true, tile, j, columns, channel, lane);
      add_scores<D, false>(acc_k, base, false, tile, j, columns, channel, lane);
      if (j < tile) {
        pass_tile<D>(acc_q, shared, j + 1, channel, lane);
        pass_tile<D>(acc_k, shared, j + 1, channel, lane);
      }
    }
    float col[16] = {};
    for (int i = kTiles - 1; i >= tile; --i) {
      if (i < kTiles - 1) {
        pass_tile<D>(col, shared, i + 1, channel, lane);
      }
      add_scores<D, true>(col, base, true, i, tile, {base + S::kQueries, kChunk}, channel, lane);
      add_scores<D, true>(col, base, false, i, tile, {base + S::kKeys, kChunk}, channel, lane);
    }

    float dbeta[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = tile * kTile + lane / 4 + 8 * half;
      const bool inside = row < chunk.rows;
      const float beta = reinterpret_cast<const float*>(shared + S::kBeta)[row];
      const float diagonal = reinterpret_cast<const float*>(shared + S::kDiagonal)[row];
      const int64_t at = ((chunk.first_token + row) * p.in.heads + head) * D + lane_channel;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float2 f = *reinterpret_cast<const float2*>(shared + S::kDecays + row * S::kDecayRow + (lane_channel + 8 * n) * 4);
        const float2 end = *reinterpret_cast<const float2*>(shared + S::kEnds + (tile * D + lane_channel + 8 * n) * 4);
        const float query[2] = {p.in.scale * bf16_low(q[4 * half + n]), p.in.scale * bf16_high(q[4 * half + n])};
        const float key[2] = {bf16_low(k[4 * half + n]), bf16_high(k[4 * half + n])};
        const uint32_t at_panel = panel_offset(row, lane_channel + 8 * n, kChunk);
        const uint32_t rounded[3] = {*reinterpret_cast<const uint32_t*>(shared + S::kQueries + at_panel),
                                     *reinterpret_cast<const uint32_t*>(shared + S::kKeys + at_panel),
                                     *reinterpret_cast<const uint32_t*>(shared + S::kColumns + at_panel)};
        float dq[2];
        float dk[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int i = 4 * n + 2 * half + j;
          const float from_first = j == 0 ? f.x : f.y;
          const float up = kUp * from_first;
          const float down = reciprocal_fast(up);
          const float row_q = up * acc_q[i];
          const float row_k = up * acc_k[i];
          const float col_k = down * col[i];
          const float leaving = down * (j == 0 ? end.x : end.y) * out[i];
          dq[j] = p.in.scale * (row_q + diagonal * key[j]);
          dk[j] = beta * row_k + col_k + (leaving + diagonal * query[j]);
          dbeta[half] += key[j] * row_k;
          // With the operands as the products had them, so that a pair's two halves cancel where both are in a sum.
          const auto operand = [&](int which) { return j == 0 ? bf16_low(rounded[which]) : bf16_high(rounded[which]); };
          acc_q[i] = operand(0) * acc_q[i] + (operand(1) * acc_k[i] - operand(2) * col[i]);
          out[i] = key[j] * leaving;
        }
        if (inside) {
          *reinterpret_cast<float2*>(p.dq + at + 8 * n) = make_float2(dq[0], dq[1]);
          *reinterpret_cast<float2*>(p.dk + at + 8 * n) = make_float2(dk[0], dk[1]);
        } else {
          acc_q[4 * n + 2 * half] = 0.0F;
          acc_q[4 * n + 2 * half + 1] = 0.0F;
          out[4 * n + 2 * half] = 0.0F;
          out[4 * n + 2 * half + 1] = 0.0F;
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      dbeta[half] += shuffle_xor(dbeta[half], 1);
      dbeta[half] += shuffle_xor(dbeta[half], 2);
      if (lane % 4 == 0) {
        reinterpret_cast<float*>(shared + S::kBetaSums)[(1 + part) * kChunk + tile * kTile + lane / 4 + 8 * half] = dbeta[half];
      }
    }
    auto* sums = reinterpret_cast<float*>(shared + S::kSums);
    sum_rows<true>(acc_q, sums + tile * D + lane_channel, lane);
    sum_rows<false>(out, sums + (kTiles + tile) * D + lane_channel, lane);
    sync_block();
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int c = lane_channel + 8 * n;
      float2 add = *reinterpret_cast<const float2*>(shared + S::kStateSum + c * 4);
      for (int t = 0; t < kTiles; ++t) {
        if (t != tile) {
          const float2 other = *reinterpret_cast<const float2*>(sums + (t < tile ? kTiles + t : t) * D + c);
          add.x += other.x;
          add.y += other.y;
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = tile * kTile + lane / 4 + 8 * half;
        const int i = 4 * n + 2 * half;
        if (row < chunk.rows) {
          const int64_t at = ((chunk.first_token + row) * p.in.heads + head) * D + c;
          *reinterpret_cast<float2*>(p.dg + at) = make_float2(acc_q[i] + out[i] + add.x, acc_q[i + 1] + out[i + 1] + add.y);
        }
      }
    }
    if (thread < chunk.rows) {
      const auto* parts = reinterpret_cast<const float*>(shared + S::kBetaSums) + thread;
      float sum = parts[0];
#pragma unroll
      for (int i = 1; i <= S::kParts; ++i) {
        sum += parts[i * kChunk];
      }
      p.dbeta[(chunk.first_token + thread) * p.in.heads + head] = sum;
    }
    sync_block();
  }
#endif
}

}  // namespace longhaul::kda::cuda
