// The order in which blocks take the tiles of weight gradients, whose cost is the number of rows of their expert.
#pragma once

#include "kernels/grouped_linear/warpgroup_tiles.cuh"

namespace longhaul::cuda::warpgroup {

// The experts by falling numbers of rows, equal ones in their order. Tiles are dealt to the blocks in this order, forwards and
// backwards in turn, so that a block with a long tile gets short ones later.
struct Order {
  int* rows;     // [experts], of each expert
  int* experts;  // [experts], the order

  // All threads of the block.
  __device__ void fill(const int64_t* offsets, int count) const {
    for (int expert = static_cast<int>(threadIdx.x); expert < count; expert += kBlockThreads) {
      rows[expert] = static_cast<int>(offsets[expert + 1] - offsets[expert]);
    }
    __syncthreads();
    for (int expert = static_cast<int>(threadIdx.x); expert < count; expert += kBlockThreads) {
      const int mine = rows[expert];
      int before = 0;
#pragma unroll 8
      for (int other = 0; other < count; ++other) {
        const int theirs = rows[other];
        before += theirs > mine || (theirs == mine && other < expert) ? 1 : 0;
      }
      experts[before] = expert;
    }
  }
};

}  // namespace longhaul::cuda::warpgroup
