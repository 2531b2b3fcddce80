// The order in which blocks take the tiles of weight gradients, whose cost is the number of rows of their expert.
#pragma once

#include "kernels/grouped_linear/warpgroup_tiles.cuh"

namespace longhaul::cuda::warpgroup {

// The experts by falling numbers of rows, equal ones in their order. Tiles are dealt to the blocks in this order, forwards and
// backwards in turn, so that a block with a long tile gets short ones later.
//
// `rows` has room for a multiple of kTogether experts, those beyond the last with less than no rows: a loop that reads kTogether
// at a time reads nothing that another thread writes.
struct Order {
  static constexpr int kTogether = 8;
  int* rows;     // [padded(experts)], of each expert
  int* experts;  // [experts], the order

  __host__ __device__ static constexpr int padded(int count) { return (count + kTogether - 1) / kTogether * kTogether; }
  __device__ static Order in(int* table, int count) { return {table, table + padded(count)}; }

  // All threads of the block.
  __device__ void fill(const int64_t* offsets, int count) const {
    for (int expert = static_cast<int>(threadIdx.x); expert < padded(count); expert += kBlockThreads) {
      rows[expert] = expert < count ? static_cast<int>(offsets[expert + 1] - offsets[expert]) : -1;
    }
    __syncthreads();
    for (int expert = static_cast<int>(threadIdx.x); expert < count; expert += kBlockThreads) {
      const int mine = rows[expert];
      int before = 0;
      for (int first = 0; first < padded(count); first += kTogether) {
#pragma unroll
        for (int other = first; other < first + kTogether; ++other) {
          const int theirs = rows[other];
          before += theirs > mine || (theirs == mine && other < expert) ? 1 : 0;
        }
      }
      experts[before] = expert;
    }
  }
};

}  // namespace longhaul::cuda::warpgroup
