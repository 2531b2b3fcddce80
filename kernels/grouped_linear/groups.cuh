// Which rows of which expert a block works on. Experts have tiles of their own, so the number of row tiles is not known on
// the host; there are at most rows / tile + experts, and the blocks beyond the last one have nothing to do.
#pragma once

#include <cstdint>

namespace longhaul::cuda {

struct RowTile {
  int64_t expert;  // -1: no work
  int64_t first;   // row of the tensor
  int64_t rows;    // at most the tile's size
};

[[nodiscard]] constexpr int64_t most_row_tiles(int64_t rows, int64_t experts, int64_t tile) { return (rows + tile - 1) / tile + experts; }

// The `wanted`-th tile in the order of experts; all threads of the block must call it, and all get it.
__device__ inline RowTile find_row_tile(const int64_t* offsets, int64_t experts, int64_t wanted, int64_t tile) {
  __shared__ RowTile found;
  if (threadIdx.x < 32) {
    const int lane = static_cast<int>(threadIdx.x);
    RowTile mine{-1, 0, 0};
    int64_t before = 0;  // tiles of the experts before these 32
    for (int64_t base = 0; base < experts; base += 32) {
      const int64_t expert = base + lane;
      const int64_t begin = expert < experts ? offsets[expert] : 0, end = expert < experts ? offsets[expert + 1] : 0;
      const int64_t tiles = (end - begin + tile - 1) / tile;
      int64_t upto = tiles;  // of this lane and those before it
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const int64_t other = __shfl_up_sync(0xffffffffu, upto, distance);
        upto += lane >= distance ? other : 0;
      }
      const int64_t index = wanted - before - (upto - tiles);
      if (index >= 0 && index < tiles) {
        mine = {expert, begin + index * tile, min(end - (begin + index * tile), tile)};
      }
      before += __shfl_sync(0xffffffffu, upto, 31);
      if (before > wanted) {
        break;
      }
    }
    const unsigned owner = __ballot_sync(0xffffffffu, mine.expert >= 0);
    if (mine.expert >= 0 || (owner == 0 && lane == 0)) {
      found = mine;
    }
  }
  __syncthreads();
  return found;
}

}  // namespace longhaul::cuda
