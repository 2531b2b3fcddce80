// Two parts of a chunk's gradients (gradients.cuh): sums over the state, and gradients of values.
#pragma once

#include "kernels/kda/cuda/gradient_factors.cuh"

namespace longhaul::kda::cuda {

// Sums of S dS' over the value columns, by channels: the diagonal of their product, 16 channels and half the value columns a warp;
// parts of the sums in kInner.
template <int D>
__device__ __forceinline__ void sum_states(unsigned char* shared, uint32_t base, int thread) {
  using S = GradientShared<D>;
  constexpr int blocks = D / 16;
  static_assert(S::kWarps == 2 * blocks);
  const int lane = thread % 32;
  const int channel = thread / 32 % blocks * 16;
  const int half = thread / 32 / blocks;
  // As load_a_transposed and load_b<Order::ColumnsOfPanel> of the first row.
  const Panel states{base + S::kStates, D};
  const uint32_t a_at = states.at(half * (D / 2) + lane % 8 + lane / 16 * 8, channel + lane / 8 % 2 * 8);
  const uint32_t b_at = states.at(half * (D / 2) + lane % 8 + lane / 8 % 2 * 8, channel + lane / 16 * 8) + (S::kStateGradients - S::kStates);
  float left[4] = {};
  float right[4] = {};
#pragma unroll
  for (int v = 0; v < D / 2; v += 16) {
    uint32_t a[4];
    uint32_t b[4];
    ldmatrix_transposed(a, a_at + static_cast<uint32_t>(v * kSlabRowBytes));
    ldmatrix_transposed(b, b_at + static_cast<uint32_t>(v * kSlabRowBytes));
    mma_f16(left, a, b[0], b[1]);
    mma_f16(right, a, b[2], b[3]);
  }
  // Lane (g, t) has columns 2 t and 2 t + 1 of rows g and g + 8.
  const int row = lane / 4;
  if (row / 2 == lane % 4) {
    auto* to = reinterpret_cast<float*>(shared + S::kInner) + half * D + channel + row;
    to[0] = row % 2 == 0 ? left[0] : left[1];
    to[8] = row % 2 == 0 ? right[2] : right[3];
  }
}

// dv = beta dR, and <dR, v>. A thread has eight columns of a row and the eight that are half a row further, so that neighbours
// share lines; it fetches the values early.
template <int D, Inputs kInputs>
struct ValueGradients {
  using S = GradientShared<D>;
  static constexpr int kRowThreads = S::kThreads / kChunk;
  static_assert(D / kRowThreads == 16);
  uint4 v[2];

  __device__ __forceinline__ void fetch(const GradientParams& p, const ChunkEntry& chunk, int head, int thread) {
    const int row = min(thread / kRowThreads, chunk.rows - 1);
    const uint16_t* from = p.v + (chunk.first_token + row) * p.v_stride + head * D + thread % kRowThreads * 8;
    v[0] = *reinterpret_cast<const uint4*>(from);
    v[1] = *reinterpret_cast<const uint4*>(from + D / 2);
  }

  __device__ __forceinline__ void write(const GradientParams& p, const ChunkEntry& chunk, int head, unsigned char* shared,
                                        int thread) const {
    const int row = thread / kRowThreads;
    const int column = thread % kRowThreads * 8;
    const float beta = reinterpret_cast<const float*>(shared + S::kBeta)[row];
    const int64_t to = ((chunk.first_token + row) * p.in.heads + head) * D + column;
    float sum = 0.0F;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int first = column + half * (D / 2);
      const uint4 d = *reinterpret_cast<const uint4*>(shared + S::kResidualGradients + panel_offset(row, first, kChunk));
      float r[8] = {f16_low(d.x), f16_high(d.x), f16_low(d.y), f16_high(d.y), f16_low(d.z), f16_high(d.z), f16_low(d.w), f16_high(d.w)};
      const float* factors = Factors<D>::of_values(shared, first);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        r[i] *= factors[i];
      }
      const uint4 x = v[half];
      sum += r[0] * bf16_low(x.x) + r[1] * bf16_high(x.x) + r[2] * bf16_low(x.y) + r[3] * bf16_high(x.y);
      sum += r[4] * bf16_low(x.z) + r[5] * bf16_high(x.z) + r[6] * bf16_low(x.w) + r[7] * bf16_high(x.w);
      if (row < chunk.rows) {
        store(p, to + half * (D / 2), beta, r);
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

 private:
  static __device__ __forceinline__ void store(const GradientParams& p, int64_t at, float beta, const float (&r)[8]) {
    if constexpr (kInputs == Inputs::Ready) {
      auto* to = static_cast<float*>(p.dv) + at;
      *reinterpret_cast<float4*>(to) = make_float4(beta * r[0], beta * r[1], beta * r[2], beta * r[3]);
      *reinterpret_cast<float4*>(to + 4) = make_float4(beta * r[4], beta * r[5], beta * r[6], beta * r[7]);
    } else {
      *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.dv) + at) =
          make_uint4(pack_bf16(beta * r[0], beta * r[1]), pack_bf16(beta * r[2], beta * r[3]), pack_bf16(beta * r[4], beta * r[5]),
                     pack_bf16(beta * r[6], beta * r[7]));
    }
  }
};

}  // namespace longhaul::kda::cuda
