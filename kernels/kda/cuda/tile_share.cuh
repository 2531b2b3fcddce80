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
  int64_t q_stride;             // elements between tokens
  int64_t k_stride;
  int64_t g_stride;             // of g or gate
  int heads;
  float scale;
};

enum class Inputs : uint8_t { Ready, Raw };

__device__ __forceinline__ float sigmoid_fast(float x) { return reciprocal_fast(1.0F + exp2_fast(-kLog2E * x)); }
__device__ __forceinline__ float bf16_value(uint16_t x) { return bf16_low(x); }

template <int K>
struct TileShare {
  static constexpr int kThreads = kTiles * K / 2;
  static constexpr int kWarpsPerTile = K / 64;

  int tile;
  int channel;            // of the first of two
  uint32_t q[kTile];      // bf16 pairs
  uint32_t k[kTile];
  float decay[kTile][2];  // log2 of the decay from the tile's first row to this one
  float first[2];         // log2 of the decay of the tile's first row

  template <Inputs kInputs>
  __device__ __forceinline__ void load(const InputParams& p, const ChunkEntry& chunk, int head, int thread);

  [[nodiscard]] __device__ __forceinline__ float total(int i) const { return first[i] + decay[kTile - 1][i]; }
};

template <int K>
template <Inputs kInputs>
__device__ __forceinline__ void TileShare<K>::load(const InputParams& p, const ChunkEntry& chunk, int head, int thread) {
  tile = thread / (K / 2);
  channel = thread % (K / 2) * 2;
  const int row0 = tile * kTile;
  const int64_t at = static_cast<int64_t>(head) * K + channel;
  const int64_t token = chunk.first_token + row0;
  const uint16_t* q_at = p.q + token * p.q_stride + at;
  const uint16_t* k_at = p.k + token * p.k_stride + at;
  const int rows = chunk.rows - row0;
  if constexpr (kInputs == Inputs::Ready) {
    const float* g_at = p.g + token * p.g_stride + at;
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
      float2 g = make_float2(0.0F, 0.0F);
      if (r < rows) {
        g = load_once(reinterpret_cast<const float2*>(g_at + r * p.g_stride));
      }
      decay[r][0] = g.x;
      decay[r][1] = g.y;
    }
  } else {
    const uint16_t* gate_at = p.gate + token * p.g_stride + at;
    uint32_t gate[kTile];
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
      gate[r] = r < rows ? load_once(reinterpret_cast<const uint32_t*>(gate_at + r * p.g_stride)) : 0U;
    }
    const float slope = p.a_log != nullptr ? exp2_fast(kLog2E * p.a_log[head]) : 1.0F;
    float2 bias = make_float2(0.0F, 0.0F);
    if (p.dt_bias != nullptr) {
      bias = *reinterpret_cast<const float2*>(p.dt_bias + at);
    }
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
      const float bound = r < rows ? p.gate_bound : 0.0F;
      decay[r][0] = bound * sigmoid_fast(slope * (bf16_low(gate[r]) + bias.x));
      decay[r][1] = bound * sigmoid_fast(slope * (bf16_high(gate[r]) + bias.y));
    }
  }
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    q[r] = r < rows ? load_once(reinterpret_cast<const uint32_t*>(q_at + r * p.q_stride)) : 0U;
    k[r] = r < rows ? load_once(reinterpret_cast<const uint32_t*>(k_at + r * p.k_stride)) : 0U;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    first[i] = kLog2E * decay[0][i];
    decay[0][i] = 0.0F;
#pragma unroll
    for (int r = 1; r < kTile; ++r) {
      decay[r][i] = decay[r - 1][i] + kLog2E * decay[r][i];
    }
  }
}

// Adds values over the lanes of a warp, 2 kHalf of them a lane; lane l ends with the sum of value l. Each step exchanges
// one half of the values for the partner's share of the other half.
template <int kHalf>
__device__ __forceinline__ float add_across_lanes(float (&values)[2 * kHalf], int lane) {
  const bool upper = (lane & kHalf) != 0;
  float kept[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float keep = upper ? values[i + kHalf] : values[i];
    const float give = upper ? values[i] : values[i + kHalf];
    kept[i] = keep + shuffle_xor(give, kHalf);
  }
  if constexpr (kHalf == 1) {
    return kept[0];
  } else {
    return add_across_lanes<kHalf / 2>(kept, lane);
  }
}

// Sums of squares of the 16 rows of q (0 to 15) and k (16 to 31) over the warp's channels; lane l returns sum l.
template <int K>
__device__ __forceinline__ float sums_of_squares(const TileShare<K>& share, int lane) {
  float values[2 * kTile];
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    const float q0 = bf16_low(share.q[r]);
    const float q1 = bf16_high(share.q[r]);
    const float k0 = bf16_low(share.k[r]);
    const float k1 = bf16_high(share.k[r]);
    values[r] = q0 * q0 + q1 * q1;
    values[kTile + r] = k0 * k0 + k1 * k1;
  }
  return add_across_lanes<kTile>(values, lane);
}

// 1 / norm of each row of q and k, in shared memory as [2, 64]; all threads of the block take part. `partial` is
// [warps, 32] floats of work.
template <int K>
__device__ __forceinline__ void inverse_norms(const TileShare<K>& share, float* partial, float* norms, int thread) {
  constexpr float kNormEpsilon = 1e-6F;
  const int lane = thread % 32;
  partial[thread] = sums_of_squares(share, lane);
  sync_block();
  if (thread < 2 * kChunk) {
    const int row = thread % kChunk;
    const int index = thread / kChunk * kTile + row % kTile;
    float sum = 0.0F;
#pragma unroll
    for (int w = 0; w < TileShare<K>::kWarpsPerTile; ++w) {
      sum += partial[(row / kTile * TileShare<K>::kWarpsPerTile + w) * 32 + index];
    }
    norms[thread] = rsqrt_fast(sum + kNormEpsilon);
  }
  sync_block();
}

}  // namespace longhaul::kda::cuda
