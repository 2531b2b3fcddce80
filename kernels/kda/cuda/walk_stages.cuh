// What both walks write of each chunk, by warpgroups of 64 value columns: the state (or its gradient) and token rows, rounded
// to 16 bits in shared memory as panels, from where the copy engine takes them to global memory while the walk goes on.
//
// With 128 channels they are fp16 times the walk's factor of each value column (row_scale.cuh), and the factors to take back
// stand beside them; bf16 would cost the gradients of parallel keys a percent. With 64 channels there is no room for
// factors where the library keeps states, and they are bf16.
#pragma once

#include "kernels/kda/cuda/products.cuh"

namespace longhaul::kda::cuda {

template <int K>
inline constexpr Format kKept = K == 128 ? Format::F16 : Format::Bf16;

template <int K>
struct WalkStages {
  static constexpr int kSlabBytes = 64 * kSlabRowBytes;
  static constexpr int kStateBytes = panel_bytes(64, K);
  uint32_t state;  // panel [64 value columns, K] of the group
  uint32_t rows;   // panel [64 tokens, 64 value columns]

  // `factor` is RowScale::back of rows g and g + 8 of the lane.
  __device__ __forceinline__ void put_state(const float (&s)[K / 2], const float (&factor)[2], int warp, int lane) const {
    const Panel panel{state, 64};
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
      uint32_t tiles[4];
      round_tiles(tiles, s + 8 * k, factor);
      stmatrix(panel.at(warp % 4 * 16 + lane % 16, 16 * k + lane / 16 * 8), tiles);
    }
  }
  // D tiles of the warp, [16 value columns, 64 tokens].
  __device__ __forceinline__ void put_rows(const float (&d)[32], const float (&factor)[2], int warp, int lane) const {
    const Panel panel{rows, kChunk};
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      uint32_t tiles[4];
      round_tiles(tiles, d + 8 * n, factor);
      stmatrix_transposed(panel.at(16 * n + lane / 16 * 8 + lane % 8, warp % 4 * 16 + lane / 8 % 2 * 8), tiles);
    }
  }
  // To the factors of the chunk's value columns, `first_row` the warp's first.
  static __device__ __forceinline__ void put_factors(float* factors, const float (&factor)[2], int first_row, int lane) {
    if constexpr (kKept<K> == Format::F16) {
      if (lane % 4 == 0) {
        factors[first_row + lane / 4] = factor[0];
        factors[first_row + lane / 4 + 8] = factor[1];
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

 private:
  static __device__ __forceinline__ void round_tiles(uint32_t (&tiles)[4], const float* d, const float (&factor)[2]) {
    constexpr Format format = kKept<K>;
    if constexpr (format == Format::F16) {
      round_to_a<format>(tiles, d, d + 4);
    } else {
      tiles[0] = pack<format>(d[0] * factor[0], d[1] * factor[0]);
      tiles[1] = pack<format>(d[2] * factor[1], d[3] * factor[1]);
      tiles[2] = pack<format>(d[4] * factor[0], d[5] * factor[0]);
      tiles[3] = pack<format>(d[6] * factor[1], d[7] * factor[1]);
    }
  }
};

}  // namespace longhaul::kda::cuda
