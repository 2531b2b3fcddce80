// Brings what the two walks left of a chunk to one unit, before products sum over value columns (gradients.cuh).
#pragma once

#include "kernels/kda/cuda/gradient_layout.cuh"

namespace longhaul::kda::cuda {

// What the walks left has a factor a value column (walk_stages.cuh), over which products sum, so that all columns must come
// to one unit: the largest of the products of the two walks' factors, of which those of columns of zeros are 0. States and
// residuals stay as they are, dO takes their factors, and gradients are made smaller where theirs is another. All are powers of
// two.
template <int D>
struct Factors {
  using S = GradientShared<D>;
  float forward = 1.0F;
  float backward = 1.0F;

  // A thread a value column.
  __device__ __forceinline__ void fetch(const GradientParams& p, int64_t item, int thread) {
    if (thread < D) {
      forward = p.factors[item * D + thread];
      backward = p.gradient_factors[item * D + thread];
    }
  }
  // Before a barrier.
  __device__ __forceinline__ void share(unsigned char* shared, int thread) const {
    if (thread < D) {
      auto* to = reinterpret_cast<float*>(shared + S::kFactors);
      to[thread] = forward;
      to[D + thread] = backward;
      float largest = forward * backward;
#pragma unroll
      for (int mask = 1; mask < 32; mask *= 2) {
        largest = max(largest, shuffle_xor(largest, mask));
      }
      to[2 * D + thread / 32] = largest;
    }
  }
  // After it, as all of the following.
  [[nodiscard]] static __device__ __forceinline__ float unit(const unsigned char* shared) {
    const auto* of_warps = reinterpret_cast<const float*>(shared + S::kFactors) + 2 * D;
    float largest = 0.0F;
#pragma unroll
    for (int i = 0; i < D / 32; ++i) {
      largest = max(largest, of_warps[i]);
    }
    return largest > 0.0F ? largest : 1.0F;
  }
  // Of eight neighbouring columns of dR as the walk left it.
  [[nodiscard]] static __device__ __forceinline__ const float* of_values(const unsigned char* shared, int column) {
    return reinterpret_cast<const float*>(shared + S::kFactors) + D + column;
  }
  // Whether some gradient is in another unit; the same for all threads.
  [[nodiscard]] static __device__ __forceinline__ bool must_rescale(const unsigned char* shared, float one, int thread) {
    const auto* factors = reinterpret_cast<const float*>(shared + S::kFactors) + thread % 32;
    bool all_one = true;
#pragma unroll
    for (int i = 0; i < D / 32; ++i) {
      all_one = all_one && factors[32 * i] * factors[D + 32 * i] == one;
    }
    return any_lane(!all_one);
  }
  // Brings dO to the unit: each thread the pieces that it has fetched.
  static __device__ __forceinline__ void scale_outputs(unsigned char* shared, float one, int thread) {
    constexpr int pieces = D / 8;
    const int column = thread % pieces * 8;
    const auto* from = reinterpret_cast<const float*>(shared + S::kFactors) + column;
    const float per_one = reciprocal_fast(one);
    float factors[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      factors[i] = from[i] * per_one;
    }
#pragma unroll
    for (int i = 0; i < kChunk * pieces / S::kThreads; ++i) {
      const int row = thread / pieces + i * (S::kThreads / pieces);
      auto* at = reinterpret_cast<uint4*>(shared + S::kOutputs + panel_offset(row, column, kChunk));
      uint4 x = *at;
      x.x = pack_f16(bf16_low(x.x) * factors[0], bf16_high(x.x) * factors[1]);
      x.y = pack_f16(bf16_low(x.y) * factors[2], bf16_high(x.y) * factors[3]);
      x.z = pack_f16(bf16_low(x.z) * factors[4], bf16_high(x.z) * factors[5]);
      x.w = pack_f16(bf16_low(x.w) * factors[6], bf16_high(x.w) * factors[7]);
      *at = x;
    }
    // Tensor cores read it from there.
    fence_async_proxy();
  }
  // Brings dR and dS' to the unit. All threads.
  static __device__ __forceinline__ void rescale_gradients(unsigned char* shared, float one, int thread) {
    const auto* factors = reinterpret_cast<const float*>(shared + S::kFactors);
    const float per_one = reciprocal_fast(one);
    constexpr int pairs = D / 2;
#pragma unroll 1
    for (int i = thread; i < kChunk * pairs; i += S::kThreads) {
      const int column = i % pairs * 2;
      scale_pair(shared + S::kResidualGradients + panel_offset(i / pairs, column, kChunk),
                 factors[column] * (factors[D + column] * per_one), factors[column + 1] * (factors[D + column + 1] * per_one));
    }
    // A row of the panel is a value column.
#pragma unroll 1
    for (int i = thread; i < D * pairs; i += S::kThreads) {
      const float factor = factors[i / pairs] * (factors[D + i / pairs] * per_one);
      scale_pair(shared + S::kStateGradients + panel_offset(i / pairs, i % pairs * 2, D), factor, factor);
    }
    // Tensor cores read there, and the copy engine writes.
    fence_async_proxy();
  }

 private:
  static __device__ __forceinline__ void scale_pair(unsigned char* at, float low, float high) {
    auto* pair = reinterpret_cast<uint32_t*>(at);
    *pair = pack_f16(f16_low(*pair) * low, f16_high(*pair) * high);
  }
};

}  // namespace longhaul::kda::cuda
