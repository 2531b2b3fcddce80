// Decay factors of one key channel over one tile of 16 rows, in a thread's registers; kernels/kda/chunk_decay.h explains the
// factors and why they are products. 256 threads hold 64 channels of a chunk: thread t has channel t % 64 of tile t / 64.
#pragma once

#include "kernels/kda/general/arguments.cuh"

namespace longhaul::cuda::kda_general {

// What tiles tell each other, by channel; in shared memory.
struct TileDecay {
  float first[4][kKeys];  // decay of a tile's first row
  float rest[4][kKeys];   // from the first row to the last
  float total[4][kKeys];  // of all rows of a tile

  // Of all tiles before, or after, `tile`.
  __device__ float before(int tile, int channel) const {
    float product = 1;
    for (int m = 0; m < tile; ++m) {
      product *= total[m][channel];
    }
    return product;
  }
  __device__ float after(int tile, int channel) const {
    float product = 1;
    for (int m = 3; m > tile; --m) {
      product *= total[m][channel];
    }
    return product;
  }
  // Between the last row of tile `from` and the anchor of tile `to`, with the anchor's own decay.
  __device__ float between(int from, int to, int channel) const {
    float product = 1;
    for (int m = from + 1; m < to; ++m) {
      product *= total[m][channel];
    }
    return product * first[to][channel];
  }
};

struct ColumnDecay {
  float alpha[kTile];  // e^g; 1 where there is no token or no channel

  __device__ static int channel() { return static_cast<int>(threadIdx.x) % kKeys; }
  __device__ static int tile() { return static_cast<int>(threadIdx.x) / kKeys; }

  // g at the chunk's first row and channel `key` of the tensor.
  __device__ void load(const Grid& grid, const float* g, int64_t first_token, int rows, int64_t head, int64_t key) {
    const bool inside = key < grid.key_dim;
    const float* from = g + grid.key_offset(first_token, head) + key;
    const int64_t stride = grid.heads * grid.key_dim;
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
      const int row = tile() * kTile + r;
      alpha[r] = inside && row < rows ? expf(from[row * stride]) : 1.0f;
    }
  }
  __device__ void share(TileDecay& shared) const {
    float rest = 1;
#pragma unroll
    for (int r = 1; r < kTile; ++r) {
      rest *= alpha[r];
    }
    shared.first[tile()][channel()] = alpha[0];
    shared.rest[tile()][channel()] = rest;
    shared.total[tile()][channel()] = alpha[0] * rest;
  }
  // to_end[r]: over (row r, last row of the tile].
  __device__ void to_end(float (&factors)[kTile]) const {
    factors[kTile - 1] = 1;
#pragma unroll
    for (int r = kTile - 2; r >= 0; --r) {
      factors[r] = factors[r + 1] * alpha[r + 1];
    }
  }
};

// One channel of a [tokens, heads, key_dim] tensor over the rows of a tile: zero where there is no token or no channel.
template <class T>
__device__ inline void load_column(const Grid& grid, const T* tensor, int64_t first_token, int rows, int64_t head, int64_t key,
                                   float (&to)[kTile]) {
  const bool inside = key < grid.key_dim;
  const T* from = tensor + grid.key_offset(first_token, head) + key;
  const int64_t stride = grid.heads * grid.key_dim;
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    const int row = ColumnDecay::tile() * kTile + r;
    to[r] = inside && row < rows ? gpu::to_float(from[row * stride]) : 0.0f;
  }
}

}  // namespace longhaul::cuda::kda_general
