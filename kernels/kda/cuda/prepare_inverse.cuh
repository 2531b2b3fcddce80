// (I + L)^-1 of a chunk (prepare.cuh) by two warps: forward substitution in the 16 x 16 tiles, then [32, 32] from those, then
// [64, 64]; T_IJ = -(T (L T))_IJ with what is known on both sides. Never by powers of L, which reach 1e17 for parallel keys.
// Everything goes to two panels: the inverse, and the inverse without the identity.
#pragma once

#include "kernels/kda/cuda/prepare_layout.cuh"

namespace longhaul::kda::cuda {

inline constexpr int kInvertThreads = 64;

// Column `column` of the inverse of the diagonal tile `tile`, by forward substitution.
template <int K>
__device__ __forceinline__ void invert_diagonal(unsigned char* shared, int tile, int column) {
  using S = PrepareShared<K>;
  const auto* l = reinterpret_cast<const float*>(shared + S::kDiagonal) + tile * S::kDiagonalTile;
  float x[kTile];
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    float sum = i == column ? 1.0F : 0.0F;
    float other = 0.0F;
#pragma unroll
    for (int m = 0; m < i; m += 4) {
      const float4 row = *reinterpret_cast<const float4*>(l + i * S::kDiagonalRow + m);
      sum -= row.x * x[m];
      if (m + 1 < i) {
        other -= row.y * x[m + 1];
      }
      if (m + 2 < i) {
        sum -= row.z * x[m + 2];
      }
      if (m + 3 < i) {
        other -= row.w * x[m + 3];
      }
    }
    x[i] = sum + other;
  }
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const uint32_t at = panel_offset(tile * kTile + i, tile * kTile + column, kChunk);
    const auto value = static_cast<uint16_t>(pack_f16(x[i], 0.0F));
    *reinterpret_cast<uint16_t*>(shared + S::kInverse + at) = value;
    *reinterpret_cast<uint16_t*>(shared + S::kSolve + at) = i == column ? uint16_t{0} : value;
  }
}

// sum += (L_IM T_MJ)^T
template <int K>
__device__ __forceinline__ void add_lower_inverse(float (&sum)[8], uint32_t base, int i, int m, int j, int lane) {
  using S = PrepareShared<K>;
  uint32_t a[4];
  uint32_t b[4];
  load_a_transposed(a, {base + S::kInverse, kChunk}, m * kTile, j * kTile, lane);
  load_b<Order::RowsOfPanel>(b, {base + S::kLower, kChunk}, i * kTile, m * kTile, lane);
  mma_f16(sum, a, b[0], b[1]);
  mma_f16(sum + 4, a, b[2], b[3]);
}
// d -= T_IM X, of X^T as it stands in registers.
template <int K>
__device__ __forceinline__ void subtract_inverse_times(float (&d)[8], uint32_t base, int i, int m, const float (&x)[8], int lane) {
  uint32_t a[4];
  load_a(a, {base + PrepareShared<K>::kInverse, kChunk}, i * kTile, m * kTile, lane);
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    a[r] ^= 0x80008000U;
  }
  mma_f16(d, a, pack_f16(x[0], x[1]), pack_f16(x[4], x[5]));
  mma_f16(d + 4, a, pack_f16(x[2], x[3]), pack_f16(x[6], x[7]));
}
template <int K>
__device__ __forceinline__ void put_inverse(uint32_t base, const float (&d)[8], int i, int j, int lane) {
  using S = PrepareShared<K>;
  const uint32_t pairs[4] = {pack_f16(d[0], d[1]), pack_f16(d[2], d[3]), pack_f16(d[4], d[5]), pack_f16(d[6], d[7])};
  const uint32_t at = panel_offset(i * kTile + lane % 16, j * kTile + lane / 16 * 8, kChunk);
  stmatrix(base + S::kInverse + at, pairs);
  stmatrix(base + S::kSolve + at, pairs);
}

// Warp 0: T_10; warp 1: T_32.
template <int K>
__device__ __forceinline__ void invert_neighbours(uint32_t base, int warp, int lane) {
  const int j = 2 * warp;
  float x[8] = {};
  float d[8] = {};
  add_lower_inverse<K>(x, base, j + 1, j, j, lane);
  subtract_inverse_times<K>(d, base, j + 1, j + 1, x, lane);
  put_inverse<K>(base, d, j + 1, j, lane);
}
// Warp J: T_2J and T_3J, after a barrier.
template <int K>
__device__ __forceinline__ void invert_halves(uint32_t base, int j, int lane) {
  float x2[8] = {};
  float x3[8] = {};
  for (int m = j; m < 2; ++m) {
    add_lower_inverse<K>(x2, base, 2, m, j, lane);
    add_lower_inverse<K>(x3, base, 3, m, j, lane);
  }
  float d2[8] = {};
  float d3[8] = {};
  subtract_inverse_times<K>(d2, base, 2, 2, x2, lane);
  subtract_inverse_times<K>(d3, base, 3, 2, x2, lane);
  subtract_inverse_times<K>(d3, base, 3, 3, x3, lane);
  put_inverse<K>(base, d2, 2, j, lane);
  put_inverse<K>(base, d3, 3, j, lane);
}

}  // namespace longhaul::kda::cuda
