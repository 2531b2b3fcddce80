// fp16 for states and values of any size. Rows of the walk are value columns, and everything in a row scales with it, so
// each row carries a power of two of its own, 1 as long as the largest of its state and of a chunk's inputs lies between
// 2^-13 and 2^8: what follows from them in the chunk stays below the largest fp16, and what fp16 cannot hold is below the
// rounding of the largest. Outside, the row is brought back to about 1.
//
// Powers of two change no bits but of values below 2^-14, so a row that a later token of the same chunk drives out of
// this range may change in bits that do not matter; all others are bitwise causal.
#pragma once

#include "kernels/kda/cuda/products.cuh"

namespace longhaul::kda::cuda {

struct RowScale {
  float to[2] = {1.0F, 1.0F};    // of rows g and g + 8 of the lane: what is in registers is the true value times this
  float back[2] = {1.0F, 1.0F};  // 1 / to

  // With state [64, K] in s and sb (rounded), and bf16 inputs of the same rows in `inputs`, not scaled.
  template <int K>
  __device__ __forceinline__ void fit(float (&s)[K / 2], uint32_t (&sb)[K / 16][4], const uint32_t (&inputs)[4][4]) {
    bool misfit = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t state = 0;
      uint32_t input = 0;
#pragma unroll
      for (int k = 0; k < K / 16; ++k) {
        state = max_abs_f16(max_abs_f16(state, sb[k][i]), sb[k][i + 2]);
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        input = max_abs_bf16(max_abs_bf16(input, inputs[n][i]), inputs[n][i + 2]);
      }
      const float size = max(max(f16_low(state), f16_high(state)), max(bf16_low(input), bf16_high(input)) * to[i]);
      misfit = misfit || is_misfit(size);
    }
    if (any_lane(misfit)) {
      refit<K>(s, sb, inputs);
    }
  }

 private:
  [[nodiscard]] static __device__ __forceinline__ bool is_misfit(float size) {
    return size > 256.0F || (size < 1.0F / 8192.0F && size > 0.0F);
  }

  template <int K>
  __device__ __forceinline__ void refit(float (&s)[K / 2], uint32_t (&sb)[K / 16][4], const uint32_t (&inputs)[4][4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t input = 0;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        input = max_abs_bf16(max_abs_bf16(input, inputs[n][i]), inputs[n][i + 2]);
      }
      float size = max(bf16_low(input), bf16_high(input)) * to[i];
#pragma unroll
      for (int k = 0; k < K / 2; k += 4) {
        size = max(size, max(fabsf(s[k + 2 * i]), fabsf(s[k + 2 * i + 1])));
      }
      size = max(size, shuffle_xor(size, 1));
      size = max(size, shuffle_xor(size, 2));
      // 2^-exponent(size): brings it to [1, 2). Zeros, infinities and what is far out of any use stay as they are.
      const uint32_t exponent = bits_of(size) >> 23 & 255U;
      const bool usable = is_misfit(size) && exponent > 27 && exponent < 227;
      const float factor = usable ? float_of((254U - exponent) << 23) : 1.0F;
      to[i] *= factor;
      back[i] = reciprocal_fast(to[i]);
#pragma unroll
      for (int k = 0; k < K / 2; k += 4) {
        s[k + 2 * i] *= factor;
        s[k + 2 * i + 1] *= factor;
      }
    }
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
      round_to_a<Format::F16>(sb[k], s + 8 * k, s + 8 * k + 4);
    }
  }
};

}  // namespace longhaul::kda::cuda
