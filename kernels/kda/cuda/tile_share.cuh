// One thread's part of a chunk's inputs: the 16 rows of a tile, two neighbouring channels. 4 K / 2 threads hold a chunk.
// Everything about decay is in logarithms to the base 2, summed from the tile's first row: sums stay below 116, and row 0
// is the anchor, a row of the past.
#pragma once

#include "kernels/kda/cuda/layout.cuh"

namespace longhaul::kda::cuda {

inline constexpr float kLog2E = 1.44269504088896340736F;

// What the kernels read of a call. Raw inputs: q and k before their L2 norm, the logits of gate and beta.
struct InputParams {
  const uint16_t* q;            // bf16 [tokens, heads, K]
  const uint16_t* k;            // bf16 [tokens, heads, K]
  const float* g;               // [tokens, heads, K]
  const float* beta;            // [tokens, heads]
  const uint16_t* gate;         // bf16 [tokens, heads, K]; raw
  const uint16_t* beta_logits;  // bf16 [tokens, heads]; raw
  const float* a_log;           // [heads]; raw, absent: zero
  const float* dt_bias;         // [heads, K]; raw, absent: zero
  float gate_bound;             // raw: g = gate_bound * sigmoid(e^{a_log} (gate + dt_bias))
  int q_stride;                 // elements between tokens
  int k_stride;
  int g_stride;                 // of g or gate
  int heads;
  float scale;
};

enum class Inputs : uint8_t { Ready, Raw };

__device__ __forceinline__ float sigmoid_fast(float x) { return reciprocal_fast(1.0F + exp2_fast(-kLog2E * x)); }

// Pairs of T of the 16 rows from `row` of a chunk. Rows beyond the chunk's last one repeat it, to be masked later: no
// condition stands between the loads.
template <class T, class Element>
__device__ __forceinline__ void load_rows(T (&to)[kTile], const Element* chunk, int stride, int row, int last) {
  static_assert(sizeof(T) == 2 * sizeof(Element));
  const auto* at = reinterpret_cast<const unsigned char*>(chunk);
  const int step = stride * static_cast<int>(sizeof(Element));
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    to[r] = load_once(reinterpret_cast<const T*>(at + static_cast<int64_t>(min(row + r, last)) * step));
  }
}

template <int K>
struct TileThread {
  static constexpr int kThreads = kTiles * K / 2;
  static constexpr int kWarpsPerTile = K / 64;
  int tile;
  int channel;  // of the first of two

  explicit __device__ __forceinline__ TileThread(int thread) : tile(thread / (K / 2)), channel(thread % (K / 2) * 2) {}
};

// The share as it comes from memory, so that a thread can fetch the next one early.
template <int K, Inputs kInputs>
struct FetchedTile;

template <int K>
struct FetchedTile<K, Inputs::Ready> {
  uint32_t q[kTile];
  uint32_t k[kTile];
  float2 g[kTile];

  __device__ __forceinline__ void fetch(const InputParams& p, const ChunkEntry& chunk, int head, TileThread<K> t) {
    const int at = head * K + t.channel;
    const int row = t.tile * kTile;
    load_rows(g, p.g + chunk.first_token * p.g_stride + at, p.g_stride, row, chunk.rows - 1);
    load_rows(q, p.q + chunk.first_token * p.q_stride + at, p.q_stride, row, chunk.rows - 1);
    load_rows(k, p.k + chunk.first_token * p.k_stride + at, p.k_stride, row, chunk.rows - 1);
  }
};

template <int K>
struct FetchedTile<K, Inputs::Raw> {
  uint32_t q[kTile];
  uint32_t k[kTile];
  uint32_t gate[kTile];

  __device__ __forceinline__ void fetch(const InputParams& p, const ChunkEntry& chunk, int head, TileThread<K> t) {
    const int at = head * K + t.channel;
    const int row = t.tile * kTile;
    load_rows(gate, p.gate + chunk.first_token * p.g_stride + at, p.g_stride, row, chunk.rows - 1);
    load_rows(q, p.q + chunk.first_token * p.q_stride + at, p.q_stride, row, chunk.rows - 1);
    load_rows(k, p.k + chunk.first_token * p.k_stride + at, p.k_stride, row, chunk.rows - 1);
  }
};

template <int K>
struct TileShare : TileThread<K> {
  using TileThread<K>::channel;
  uint32_t q[kTile];      // bf16 pairs
  uint32_t k[kTile];
  float decay[kTile][2];  // log2 of the decay from the tile's first row to this one
  float first[2];         // log2 of the decay of the tile's first row

  __device__ __forceinline__ TileShare(const FetchedTile<K, Inputs::Ready>& from, const InputParams& p, int head, int rows, TileThread<K> t);
  __device__ __forceinline__ TileShare(const FetchedTile<K, Inputs::Raw>& from, const InputParams& p, int head, int rows, TileThread<K> t);
  [[nodiscard]] __device__ __forceinline__ float total(int i) const { return first[i] + decay[kTile - 1][i]; }

 private:
  __device__ __forceinline__ void mask(int rows);
  __device__ __forceinline__ void sum_decay(float unit);
};

template <int K>
__device__ __forceinline__ TileShare<K>::TileShare(const FetchedTile<K, Inputs::Ready>& from, const InputParams&, int, int rows,
                                                   TileThread<K> t)
    : TileThread<K>(t) {
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    q[r] = from.q[r];
    k[r] = from.k[r];
    decay[r][0] = from.g[r].x;
    decay[r][1] = from.g[r].y;
  }
  mask(rows);
  sum_decay(kLog2E);
}

// rows: of the chunk.
template <int K>
__device__ __forceinline__ TileShare<K>::TileShare(const FetchedTile<K, Inputs::Raw>& from, const InputParams& p, int head,
                                                   int rows, TileThread<K> t)
    : TileThread<K>(t) {
  // Of 1 + e^{-slope (gate + bias)}, with the exponent to the base 2.
  const float slope = -kLog2E * (p.a_log != nullptr ? exp2_fast(kLog2E * p.a_log[head]) : 1.0F);
  float2 bias = make_float2(0.0F, 0.0F);
  if (p.dt_bias != nullptr) {
    bias = *reinterpret_cast<const float2*>(p.dt_bias + static_cast<int64_t>(head) * K + channel);
  }
  bias.x *= slope;
  bias.y *= slope;
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    q[r] = from.q[r];
    k[r] = from.k[r];
    decay[r][0] = reciprocal_fast(1.0F + exp2_fast(slope * bf16_low(from.gate[r]) + bias.x));
    decay[r][1] = reciprocal_fast(1.0F + exp2_fast(slope * bf16_high(from.gate[r]) + bias.y));
  }
  mask(rows);
  sum_decay(kLog2E * p.gate_bound);
}

// Rows beyond the chunk: no decay, no keys, no queries.
template <int K>
__device__ __forceinline__ void TileShare<K>::mask(int rows) {
  rows -= this->tile * kTile;
  if (rows >= kTile) {
    return;
  }
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    q[r] = r < rows ? q[r] : 0U;
    k[r] = r < rows ? k[r] : 0U;
    decay[r][0] = r < rows ? decay[r][0] : 0.0F;
    decay[r][1] = r < rows ? decay[r][1] : 0.0F;
  }
}

// decay: from a value a row to the sums from the second row on, times a unit; the first row goes to `first`.
template <int K>
__device__ __forceinline__ void TileShare<K>::sum_decay(float unit) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    first[i] = unit * decay[0][i];
    decay[0][i] = 0.0F;
#pragma unroll
    for (int r = 1; r < kTile; ++r) {
      decay[r][i] = decay[r - 1][i] + unit * decay[r][i];
    }
  }
}

// 1 / norm of each row of q and k, in shared memory as [2, 64]; all threads of the block take part; `work` may still be
// in use on entry. It is
// [threads, 36] floats: rows of 32 sums of squares, q's then k's, padded against bank conflicts.
template <int K>
__device__ __forceinline__ void inverse_norms(const TileShare<K>& share, float* work, float* norms, int thread) {
  constexpr float kNormEpsilon = 1e-6F;
  constexpr int kRow = 2 * kTile + 4;
  const int lane = thread % 32;
  float* mine = work + thread * kRow;
  sync_block();
#pragma unroll
  for (int r = 0; r < kTile; r += 4) {
    float of_q[4];
    float of_k[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float q[2] = {bf16_low(share.q[r + i]), bf16_high(share.q[r + i])};
      const float k[2] = {bf16_low(share.k[r + i]), bf16_high(share.k[r + i])};
      of_q[i] = q[0] * q[0] + q[1] * q[1];
      of_k[i] = k[0] * k[0] + k[1] * k[1];
    }
    *reinterpret_cast<float4*>(mine + r) = make_float4(of_q[0], of_q[1], of_q[2], of_q[3]);
    *reinterpret_cast<float4*>(mine + kTile + r) = make_float4(of_k[0], of_k[1], of_k[2], of_k[3]);
  }
  sync_warp();
  // Lane l adds column l over the warp's rows.
  const float* column = work + (thread - lane) * kRow + lane;
  float sums[4] = {};
#pragma unroll
  for (int row = 0; row < 32; row += 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i] += column[(row + i) * kRow];
    }
  }
  const float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  sync_warp();
  mine[2 * kTile] = sum;
  sync_block();
  if (thread < 2 * kChunk) {
    const int row = thread % kChunk;
    const int index = thread / kChunk * kTile + row % kTile;
    const float* sum_at = work + 2 * kTile + (row / kTile * TileThread<K>::kWarpsPerTile * 32 + index) * kRow;
    float square = kNormEpsilon;
#pragma unroll
    for (int w = 0; w < TileThread<K>::kWarpsPerTile; ++w) {
      square += sum_at[w * 32 * kRow];
    }
    norms[thread] = rsqrt_fast(square);
  }
  sync_block();
}

}  // namespace longhaul::kda::cuda
