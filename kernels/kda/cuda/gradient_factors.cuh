// Brings what the two walks left of a chunk to one unit, before products sum over value columns (gradients.cuh).
#pragma once

#include "kernels/kda/cuda/gradient_layout.cuh"

namespace longhaul::kda::cuda {

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

}  // namespace longhaul::kda::cuda
