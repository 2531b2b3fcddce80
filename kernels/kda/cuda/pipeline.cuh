// The ring of shared-memory stages through which one warp feeds chunk images and token rows to the warpgroups that
// compute. Two barriers a stage: full (bytes have arrived), empty (all warps have read them).
#pragma once

#include "kernels/kda/cuda/layout.cuh"

namespace longhaul::kda::cuda {

inline constexpr int kStages = 2;

// [64, columns] rows of tokens in shared memory, 16 bytes of padding a row against bank conflicts.
struct TokenRows {
  uint32_t address;
  int columns;

  __host__ __device__ static constexpr int bytes(int columns) { return kChunk * row_bytes(columns); }
  __host__ __device__ static constexpr int row_bytes(int columns) { return 2 * columns + 16; }
  [[nodiscard]] __device__ __forceinline__ uint32_t at(int row, int column) const {
    return address + static_cast<uint32_t>(row * row_bytes(columns) + 2 * column);
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
  // One thread.
  __device__ __forceinline__ void init(int reading_warps) const {
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(full(s), 1);
      mbarrier_init(empty(s), reading_warps);
    }
    fence_barrier_init();
  }
  // `step` counts the chunks that have passed.
  __device__ __forceinline__ void wait_full(int step) const { mbarrier_wait(full(step % kStages), step / kStages & 1); }
  __device__ __forceinline__ void wait_empty(int step) const { mbarrier_wait(empty(step % kStages), (step / kStages & 1) ^ 1); }
};

// Token rows of one chunk: `columns` values a row from global memory. Rows beyond the chunk become zeros. All lanes of
// the feeding warp; the bytes are part of what the barrier expects.
__device__ __forceinline__ void zero_missing_rows(TokenRows to, int rows, int lane) {
  unsigned char* shared = dynamic_shared() - shared_address(dynamic_shared());
  for (int row = rows; row < kChunk; ++row) {
    for (int column = lane * 2; column < to.columns; column += 64) {
      *reinterpret_cast<uint32_t*>(shared + to.at(row, column)) = 0;
    }
  }
}
__device__ __forceinline__ void load_token_rows(TokenRows to, const uint16_t* from, int64_t stride, int rows, uint32_t barrier,
                                                int lane) {
  for (int row = lane; row < rows; row += 32) {
    bulk_load(to.at(row, 0), from + row * stride, static_cast<uint32_t>(2 * to.columns), barrier);
  }
}

}  // namespace longhaul::kda::cuda
