// The ring of shared-memory stages through which one warpgroup feeds chunk images and token rows to those that compute.
// Two barriers a stage: full (bytes have arrived), empty (all warps have read them).
#pragma once

#include "kernels/kda/cuda/layout.cuh"

namespace longhaul::kda::cuda {

inline constexpr int kStages = 2;
inline constexpr int kFeedThreads = 128;

// [64, columns] rows of tokens in shared memory, a panel.
struct TokenRows {
  uint32_t address;

  __host__ __device__ static constexpr int bytes(int columns) { return panel_bytes(kChunk, columns); }
  [[nodiscard]] __device__ __forceinline__ uint32_t at(int row, int column) const {
    return address + panel_offset(row, column, kChunk);
  }
};

// Addresses of the matrices of ldmatrix_transposed and stmatrix_transposed that make rows [row, row + 16) and columns
// [column, column + 16) of token rows two D tiles of the transposed matrix: registers 0, 1 are the left tile (rows g and
// g + 8), registers 2, 3 the right one.
__device__ __forceinline__ uint32_t transposed_tiles(TokenRows rows, int row, int column, int lane) {
  return rows.at(row + lane / 16 * 8 + lane % 8, column + lane / 8 % 2 * 8);
}

struct Ring {
  uint32_t barriers;  // full [kStages], empty [kStages]

  static constexpr int kBytes = 2 * kStages * 8;
  [[nodiscard]] __device__ __forceinline__ uint32_t full(int stage) const { return barriers + static_cast<uint32_t>(8 * stage); }
  [[nodiscard]] __device__ __forceinline__ uint32_t empty(int stage) const {
    return barriers + static_cast<uint32_t>(8 * (kStages + stage));
  }
  // One thread. Every reading thread arrives itself: a warp's first lane for all of it would be as right on the hardware and up to
  // one percent faster, but is no order between the other lanes' reads and the next stage's copies that racecheck could know of.
  __device__ __forceinline__ void init(int reading_threads) const {
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(full(s), 1 + kFeedThreads);
      mbarrier_init(empty(s), reading_threads);
    }
    fence_barrier_init();
  }
  // `step` counts the chunks that have passed.
  __device__ __forceinline__ void wait_full(int step) const { mbarrier_wait(full(step % kStages), step / kStages & 1); }
  __device__ __forceinline__ void wait_empty(int step) const { mbarrier_wait(empty(step % kStages), (step / kStages & 1) ^ 1); }
};

// Token rows of one chunk from global memory, by all feeding threads; rows beyond the chunk become zeros.
template <int kColumns>
__device__ __forceinline__ void load_token_rows(TokenRows to, const uint16_t* from, int64_t stride, int rows, int thread) {
  constexpr int pieces = kColumns / 8;
  static_assert(kFeedThreads % pieces == 0);
  const int column = thread % pieces * 8;
#pragma unroll
  for (int i = 0; i < kChunk * pieces / kFeedThreads; ++i) {
    const int row = thread / pieces + i * (kFeedThreads / pieces);
    copy_16(to.at(row, column), from + (row < rows ? row * stride + column : 0), row >= rows);
  }
}

}  // namespace longhaul::kda::cuda
