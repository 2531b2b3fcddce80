// A tile of a matrix product in fp32, without tensor cores: C[64, 64] = A[64, k] B[k, 64] by 256 threads, 4 x 4 elements each.
#pragma once

#include <cstdint>

namespace longhaul::cuda {

inline constexpr int kFloatTile = 64;
inline constexpr int kFloatDepth = 16;

// One factor: element (i, k) is at data[i * i_stride + k * k_stride], with i a row of A or a column of B.
struct FloatFactor {
  const float* data;
  int64_t i_stride, k_stride;
  int64_t begin, limit;  // first i of the tile; i at and beyond the limit are zero
};

struct FloatSums {
  float c[4][4] = {};

  // Calls fn(row, column, value) for the thread's elements of the tile.
  template <class Fn>
  __device__ void for_each(Fn&& fn) const {
    const int row = static_cast<int>(threadIdx.x) / 16 * 4, column = static_cast<int>(threadIdx.x) % 16 * 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        fn(row + i, column + j, c[i][j]);
      }
    }
  }
};

// Neighbouring threads take neighbouring addresses, whichever dimension they lie along.
__device__ inline void load_float_stage(float (&stage)[kFloatDepth][kFloatTile + 4], const FloatFactor& f, int64_t k_begin,
                                        int64_t k_limit) {
  const bool along_k = f.k_stride == 1;
  for (int e = static_cast<int>(threadIdx.x); e < kFloatDepth * kFloatTile; e += 256) {
    const int i = along_k ? e / kFloatDepth : e % kFloatTile, k = along_k ? e % kFloatDepth : e / kFloatTile;
    const int64_t at_i = f.begin + i, at_k = k_begin + k;
    stage[k][i] = at_i < f.limit && at_k < k_limit ? f.data[at_i * f.i_stride + at_k * f.k_stride] : 0.0f;
  }
}

__device__ inline void multiply_float_tile(FloatSums& sums, const FloatFactor& a, const FloatFactor& b, int64_t k_limit) {
  __shared__ float a_stage[kFloatDepth][kFloatTile + 4], b_stage[kFloatDepth][kFloatTile + 4];
  const int row = static_cast<int>(threadIdx.x) / 16 * 4, column = static_cast<int>(threadIdx.x) % 16 * 4;
  for (int64_t k_begin = 0; k_begin < k_limit; k_begin += kFloatDepth) {
    __syncthreads();
    load_float_stage(a_stage, a, k_begin, k_limit);
    load_float_stage(b_stage, b, k_begin, k_limit);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kFloatDepth; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sums.c[i][j] += a_stage[k][row + i] * b_stage[k][column + j];
        }
      }
    }
  }
}

}  // namespace longhaul::cuda
