// Tiles of the tensor-core kernels of causal attention on Hopper (sm_90a), whose instructions are in kernels/gpu/warpgroup.cuh.
//
// Tiles in shared memory are slabs of 64 columns; a row of a slab is 128 bytes, its eight units of 16 bytes permuted by the
// row number, which is what the tensor cores call a 128-byte swizzle. They read such a tile by rows or by columns.
#pragma once

#include "kernels/attention/attention_tiles.cuh"
#include "kernels/gpu/warpgroup.cuh"

namespace longhaul::gpu::attention {

using namespace warpgroup;

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr int kGroupRows = 64;   // of a warpgroup
inline constexpr int kBlockRows = 128;  // of a block: two warpgroups
static_assert(kThreads == 256);

// Which tile of which head a block has. Blocks start in the order of their numbers, and a multiprocessor holds one: with the
// longest tiles of several heads first, the short ones fill the end. Up to 16 heads run side by side, so that several blocks
// read the same keys at about the same time and find them in the cache.
struct BlockOrder {
  static constexpr int64_t kMostSideBySide = 16;
  int64_t tiles, heads, side_by_side;

  BlockOrder(int64_t tiles_, int64_t heads_)
      : tiles(tiles_), heads(heads_), side_by_side(ceil_div(heads_, ceil_div(heads_, kMostSideBySide))) {}
  [[nodiscard]] unsigned blocks() const { return static_cast<unsigned>(tiles * heads); }

  struct Place {
    int64_t turn, head;  // turn: of the tile among those of its head
  };
  __device__ __forceinline__ Place place(int64_t block) const {
    const int64_t first_head = block / (tiles * side_by_side) * side_by_side;
    const int64_t rest = block % (tiles * side_by_side), count = min(side_by_side, heads - first_head);
    return {rest / count, first_head + rest % count};
  }
};

// Which rows and columns of an accumulator a thread has.
struct Lane {
  int group, row, column;  // row in the warpgroup's 64 (and row + 8); column (and column + 1) of every 8

  __device__ Lane()
      : group(static_cast<int>(threadIdx.x) / 128),
        row(static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4),
        column(static_cast<int>(threadIdx.x) % 4 * 2) {}
};

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// A tile [R, D] of bf16 at an address of shared memory that is a multiple of 1024.
template <int R, int D>
struct SwizzledTile {
  static constexpr int kBytes = R * D * 2;
  uint32_t address;

  // What a product reads from (row, column) on; row a multiple of 8, column of 16. Groups of 8 rows are 1024 bytes apart.
  __device__ __forceinline__ uint64_t at(int row, int column) const {
    constexpr uint64_t kFields = (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32) | (uint64_t{1024 >> 4} << 16);
    return kFields | ((address + static_cast<uint32_t>(column / 64 * R * 128 + row * 128 + column % 64 * 2)) >> 4);
  }

  // Starts copying rows [first, first + R) of a head, zeros beside and below; `rows` of them exist. All threads of the block.
  __device__ __forceinline__ void copy(const Heads<const BF16>& from, int64_t first, int64_t head, int rows) const {
    const int unit = static_cast<int>(threadIdx.x) % 8, row = static_cast<int>(threadIdx.x) / 8;
    const uint32_t to = address + static_cast<uint32_t>(row * 128 + (unit ^ (row % 8)) * 16);
    const BF16* source = from.row(first + row, head) + unit * 8;
#pragma unroll
    for (int r = 0; r < R; r += kThreads / 8) {
#pragma unroll
      for (int slab = 0; slab < D / 64; ++slab) {
        const bool exists = row + r < rows && slab * 64 + unit * 8 < from.columns;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + static_cast<uint32_t>(slab * R * 128 + r * 128)),
                     "l"(exists ? source + slab * 64 : from.data), "r"(exists ? 16 : 0)
                     : "memory");
      }
      source += kThreads / 8 * from.token_stride;
    }
  }
};

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all copies of the block and makes them visible to the tensor cores.
__device__ __forceinline__ void finish_copies() {
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}

// Waits until the registers of all products are back.
__device__ __forceinline__ void finish_products() {
  commit_products();
  wait_products<0>();
}
// Rows of a head from accumulators [64, 64 M], times a factor for each of the thread's two rows.
template <class T, int M>
__device__ __forceinline__ void write_rows(const float (&d)[M][32], const Heads<T>& to, int64_t first, int64_t head, int rows,
                                           const Lane& lane, const float (&factor)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane.group * kGroupRows + lane.row + 8 * half;
    if (row >= rows) {
      continue;
    }
    T* out = to.row(first + row, head) + lane.column;
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (64 * m + 8 * j < to.columns) {
          const float low = d[m][4 * j + 2 * half] * factor[half], high = d[m][4 * j + 2 * half + 1] * factor[half];
          if constexpr (std::is_same_v<T, BF16>) {
            *reinterpret_cast<uint32_t*>(out + 64 * m + 8 * j) = pack(low, high);
          } else {
            *reinterpret_cast<float2*>(out + 64 * m + 8 * j) = make_float2(low, high);
          }
        }
      }
    }
  }
}

// Calls fn with the columns of tiles for keys and values. Widths are at most 192 and 128.
template <class Fn>
void with_tile_columns(int64_t key_dim, int64_t value_dim, Fn&& fn) {
  const auto k64 = std::integral_constant<int, 64>{};
  const auto k128 = std::integral_constant<int, 128>{};
  const auto k192 = std::integral_constant<int, 192>{};
  if (key_dim <= 64 && value_dim <= 64) {
    fn(k64, k64);
  } else if (key_dim <= 128) {
    fn(k128, k128);
  } else {
    fn(k192, k128);
  }
}

}  // namespace longhaul::gpu::attention
