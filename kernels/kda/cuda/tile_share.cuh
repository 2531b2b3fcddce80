// One thread's part of a chunk's inputs: the 16 rows of a tile, two neighbouring channels. 4 K / 2 threads hold a chunk.
// Everything about decay is in logarithms to the base 2, summed from the tile's first row: sums stay below 116, and row 0
// is the anchor, a row of the past.
#pragma once

#include "kernels/kda/cuda/inputs.cuh"

namespace longhaul::kda::cuda {

// Pairs of T of the 16 rows from `row` of a chunk. Rows beyond the chunk's last one repeat it, to be masked later: no
// condition stands between the loads.
template <class T, class Element>
__device__ __forceinline__ void load_rows(T (&to)[kTile], const Element* chunk, int stride, int row, int last) {
  static_assert(sizeof(T) == 2 * sizeof(Element));
  const auto* at = reinterpret_cast<const unsigned char*>(chunk);
  const int step = stride * static_cast<int>(sizeof(Element));
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    to[r] = load_once(reinterpret_cast<const T*>(at + static_cast<int64_t>(min(row + r, last)) * step));
  }
}

template <int K>
struct TileThread {
  static constexpr int kThreads = kTiles * K / 2;
  static constexpr int kWarpsPerTile = K / 64;
  int tile;
  int channel;  // of the first of two

  explicit __device__ __forceinline__ TileThread(int thread) : tile(thread / (K / 2)), channel(thread % (K / 2) * 2) {}
};

// The share as it comes from memory, so that a thread can fetch the next one early.
template <int K>
struct FetchedTile {
  uint32_t q[kTile];
  uint32_t k[kTile];
  float2 g[kTile];

  __device__ __forceinline__ void fetch(const InputParams& p, const ChunkEntry& chunk, int head, TileThread<K> t) {
    const int at = head * K + t.channel;
    const int row = t.tile * kTile;
    load_rows(g, p.g + chunk.first_token * p.g_stride + at, p.g_stride, row, chunk.rows - 1);
    load_rows(q, p.q + chunk.first_token * p.q_stride + at, p.q_stride, row, chunk.rows - 1);
    load_rows(k, p.k + chunk.first_token * p.k_stride + at, p.k_stride, row, chunk.rows - 1);
  }
};

template <int K>
struct TileShare : TileThread<K> {
  using TileThread<K>::channel;
  uint32_t q[kTile];      // bf16 pairs
  uint32_t k[kTile];
  float decay[kTile][2];  // log2 of the decay from the tile's first row to this one
  float first[2];         // log2 of the decay of the tile's first row

  // rows: of the chunk.
  __device__ __forceinline__ TileShare(const FetchedTile<K>& from, int rows, TileThread<K> t);
  [[nodiscard]] __device__ __forceinline__ float total(int i) const { return first[i] + decay[kTile - 1][i]; }

 private:
  __device__ __forceinline__ void mask(int rows);
  __device__ __forceinline__ void sum_decay();
};

template <int K>
__device__ __forceinline__ TileShare<K>::TileShare(const FetchedTile<K>& from, int rows, TileThread<K> t) : TileThread<K>(t) {
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    q[r] = from.q[r];
    k[r] = from.k[r];
    decay[r][0] = from.g[r].x;
    decay[r][1] = from.g[r].y;
  }
  mask(rows);
  sum_decay();
}

// Rows beyond the chunk: no decay, no keys, no queries.
template <int K>
__device__ __forceinline__ void TileShare<K>::mask(int rows) {
  rows -= this->tile * kTile;
  if (rows >= kTile) {
    return;
  }
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    q[r] = r < rows ? q[r] : 0U;
    k[r] = r < rows ? k[r] : 0U;
    decay[r][0] = r < rows ? decay[r][0] : 0.0F;
    decay[r][1] = r < rows ? decay[r][1] : 0.0F;
  }
}

// decay: from a value a row to the sums from the second row on, to the base 2; the first row goes to `first`.
template <int K>
__device__ __forceinline__ void TileShare<K>::sum_decay() {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    first[i] = kLog2E * decay[0][i];
    decay[0][i] = 0.0F;
#pragma unroll
    for (int r = 1; r < kTile; ++r) {
      decay[r][i] = decay[r - 1][i] + kLog2E * decay[r][i];
    }
  }
}

}  // namespace longhaul::kda::cuda
