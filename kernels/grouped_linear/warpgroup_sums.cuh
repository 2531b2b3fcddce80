// How a warp adds its 16 rows of a tile to a weight gradient in fp32.
#pragma once

#include "kernels/grouped_linear/warpgroup_tiles.cuh"

namespace longhaul::cuda::warpgroup {

struct Gradient {
  float* data;  // [rows, columns]
  int rows, columns;
};

// Additions that do not wait for the old value. Where nobody else adds, they give the same bits.
__device__ __forceinline__ void add_four(float* at, float a, float b, float c, float d) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

// The thread's rows `row` and row + 8, from the tile's first column on. Of 16 columns, a thread has two pairs; with its neighbour
// it makes four columns in a row of each half: even lanes take the left eight columns, odd ones the right eight.
template <int N>
__device__ __forceinline__ void add_sums(const float (&sums)[N / 2], const Gradient& to, int row, int first_column, const Consumer& me) {
  const bool odd = me.lane % 2 != 0;
  const int column = first_column + (odd ? 8 : 0) + me.lane % 4 / 2 * 4;
  float* at = to.data + int64_t{row} * to.columns + column;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < N / 8; j += 2) {
      const float* left = sums + 4 * j + 2 * half;
      const float* right = left + 4;
      const float low = __shfl_xor_sync(0xffffffffu, odd ? left[0] : right[0], 1);
      const float high = __shfl_xor_sync(0xffffffffu, odd ? left[1] : right[1], 1);
      if (row + 8 * half < to.rows && column + 8 * j < to.columns) {
        float* four = at + int64_t{8} * half * to.columns + 8 * j;
        if (odd) {
          add_four(four, low, high, right[0], right[1]);
        } else {
          add_four(four, left[0], left[1], low, high);
        }
      }
    }
  }
}

}  // namespace longhaul::cuda::warpgroup
