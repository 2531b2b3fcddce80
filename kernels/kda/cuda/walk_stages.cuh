// What both walks write of each chunk, by warpgroups of 64 value columns: the state (or its gradient) and token rows, rounded
// to 16 bits in shared memory as panels, from where the copy engine takes them to global memory while the walk goes on.
//
// They are fp16 times the walk's factor of each value column (row_scale.cuh), and the factors to take back stand beside them;
// bf16 would cost the gradients of parallel keys a percent.
#pragma once

#include "kernels/kda/cuda/products.cuh"

namespace longhaul::kda::cuda {

template <int K>
struct WalkStages {
  static constexpr int kSlabBytes = 64 * kSlabRowBytes;
  static constexpr int kStateBytes = panel_bytes(64, K);
  uint32_t state;  // panel [64 value columns, K] of the group
  uint32_t rows;   // panel [64 tokens, 64 value columns]

  __device__ __forceinline__ void put_state(const float (&s)[K / 2], int warp, int lane) const {
    const Panel panel{state, 64};
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
      uint32_t tiles[4];
      round_to_a<Format::F16>(tiles, s + 8 * k, s + 8 * k + 4);
      stmatrix(panel.at(warp % 4 * 16 + lane % 16, 16 * k + lane / 16 * 8), tiles);
    }
  }
  // D tiles of the warp, [16 value columns, 64 tokens].
  __device__ __forceinline__ void put_rows(const float (&d)[32], int warp, int lane) const {
    const Panel panel{rows, kChunk};
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      uint32_t tiles[4];
      round_to_a<Format::F16>(tiles, d + 8 * n, d + 8 * n + 4);
      stmatrix_transposed(panel.at(16 * n + lane / 16 * 8 + lane % 8, warp % 4 * 16 + lane / 8 % 2 * 8), tiles);
    }
  }
  // RowScale::back of rows g and g + 8 to the factors of the chunk's value columns, `first_row` the warp's first. A column of
  // zeros alone, in state and inputs, gets 0, since it has no unit. Both are 16-bit fragments of the warp's columns.
  static __device__ __forceinline__ void put_factors(float* factors, const float (&factor)[2], const uint32_t (&state)[K / 16][4],
                                                     const uint32_t (&inputs)[4][4], int first_row, int lane) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t bits = 0;
#pragma unroll
      for (int k = 0; k < K / 16; ++k) {
        bits |= state[k][i] | state[k][i + 2];
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        bits |= inputs[n][i] | inputs[n][i + 2];
      }
      float used = (bits & 0x7fff7fffU) != 0 ? factor[i] : 0.0F;
      used = max(used, shuffle_xor(used, 1));
      used = max(used, shuffle_xor(used, 2));
      if (lane % 4 == 0) {
        factors[first_row + lane / 4 + 8 * i] = used;
      }
    }
  }
  // By one thread of the group, after a barrier, to panels [value_columns, K] and [64, value_columns] of the chunk.
  __device__ __forceinline__ void write(unsigned char* states, unsigned char* token_rows, int first_column, int value_columns) const {
#pragma unroll
    for (int slab = 0; slab < K / kSlab; ++slab) {
      bulk_store(states + (slab * value_columns + first_column) * kSlabRowBytes, state + static_cast<uint32_t>(slab * kSlabBytes),
                 kSlabBytes);
    }
    bulk_store(token_rows + first_column / 64 * kSlabBytes, rows, kSlabBytes);
    bulk_store_commit();
  }
};

}  // namespace longhaul::kda::cuda
