// Products with operands in panels (layout.cuh): 16 rows by one warp, 64 rows by a warpgroup. `row` and `column` name
// where the right operand starts in its panel.
#pragma once

#include "kernels/kda/cuda/layout.cuh"

namespace longhaul::kda::cuda {

struct Panel {
  uint32_t address;  // in shared memory, aligned to 1024 bytes where wgmma reads it
  int rows;
  uint32_t unit = 0;  // address / 16; where wgmma reads it

  [[nodiscard]] __device__ __forceinline__ uint32_t at(int row, int column) const {
    return address + panel_offset(row, column, rows);
  }
};

// A fragment of rows [row, row + 16), columns [column, column + 16).
__device__ __forceinline__ void load_a(uint32_t (&a)[4], Panel panel, int row, int column, int lane) {
  ldmatrix(a, panel.at(row + lane % 16, column + lane / 16 * 8));
}
// The same of the transposed panel: A row i is panel column `column` + i, A column p is panel row `row` + p.
__device__ __forceinline__ void load_a_transposed(uint32_t (&a)[4], Panel panel, int row, int column, int lane) {
  ldmatrix_transposed(a, panel.at(row + lane % 8 + lane / 16 * 8, column + lane / 8 % 2 * 8));
}
// B fragments of 16 contracted values and 16 columns: b[0], b[1] for the first 8 columns, b[2], b[3] for the next.
template <Order kOrder>
__device__ __forceinline__ void load_b(uint32_t (&b)[4], Panel panel, int row, int column, int lane) {
  if constexpr (kOrder == Order::RowsOfPanel) {
    ldmatrix(b, panel.at(row + lane % 8 + lane / 16 * 8, column + lane / 8 % 2 * 8));
  } else {
    ldmatrix_transposed(b, panel.at(row + lane % 8 + lane / 8 % 2 * 8, column + lane / 16 * 8));
  }
}

// Addresses that a lane gives to ldmatrix, walking along the columns of a panel: `start` is its place at column 0. Only
// the swizzle changes along a slab, by an exclusive or.
struct ColumnCursor {
  uint32_t start;
  int rows;

  // column: a multiple of 16
  [[nodiscard]] __device__ __forceinline__ uint32_t at(int column) const {
    return (start ^ static_cast<uint32_t>(column % kSlab * 2)) + static_cast<uint32_t>(column / kSlab * rows * kSlabRowBytes);
  }
};
// For A fragments of rows [row, row + 16), and for B fragments (load_b, RowsOfPanel) of the same.
__device__ __forceinline__ ColumnCursor cursor_a(Panel panel, int row, int lane) {
  return {panel.at(row + lane % 16, lane / 16 * 8), panel.rows};
}
__device__ __forceinline__ ColumnCursor cursor_b(Panel panel, int row, int lane) {
  return {panel.at(row + lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8), panel.rows};
}

enum class Format : uint8_t { F16, Bf16 };

template <Format kFormat>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  return kFormat == Format::F16 ? pack_f16(low, high) : pack_bf16(low, high);
}
template <Format kFormat>
__device__ __forceinline__ void mma(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (kFormat == Format::F16) {
    mma_f16(d, a, b0, b1);
  } else {
    mma_bf16(d, a, b0, b1);
  }
}

// Two neighbouring D tiles, rounded, as an A fragment.
template <Format kFormat>
__device__ __forceinline__ void round_to_a(uint32_t (&a)[4], const float* left, const float* right) {
  a[0] = pack<kFormat>(left[0], left[1]);
  a[1] = pack<kFormat>(left[2], left[3]);
  a[2] = pack<kFormat>(right[0], right[1]);
  a[3] = pack<kFormat>(right[2], right[3]);
}

// How a warpgroup multiplies: with wgmma, or each warp on its own 16 rows with mma.sync.
enum class Engine : uint8_t { Warpgroup, Warp };

// Descriptor of a panel with a 128-byte swizzle from an address in units of 16 bytes. Read by columns, slabs are
// `panel_rows` rows apart; groups of 8 rows are 1024 bytes apart in both orders.
__device__ __forceinline__ uint64_t panel_descriptor(uint32_t unit, int panel_rows) {
  constexpr uint32_t high = (1U << 30) | (1024U >> 4);
  const uint32_t low = unit + (static_cast<uint32_t>(panel_rows * kSlabRowBytes >> 4) << 16);
  return static_cast<uint64_t>(high) << 32 | low;
}

template <int N, Order kOrder, Sign kSign>
__device__ __forceinline__ void wgmma(float* d, const uint32_t (&a)[4], uint64_t b, Into into) {
  if constexpr (N == 32) {
    wgmma_n32<kOrder, kSign>(d, a, b, into);
  } else if constexpr (N == 64) {
    wgmma_n64<kOrder, kSign>(d, a, b, into);
  } else {
    static_assert(N == 128);
    wgmma_n128<kOrder, kSign>(d, a, b, into);
  }
}

template <int N, Order kOrder>
__device__ __forceinline__ void wgmma_shared(float* d, uint64_t a, uint64_t b, Into into) {
  if constexpr (N == 32) {
    wgmma_shared_n32<kOrder>(d, a, b, into);
  } else {
    static_assert(N == 64);
    wgmma_shared_n64<kOrder>(d, a, b, into);
  }
}

// In fp16: d [64, N] (=, +=) +-a [64, 16] times: the N panel rows from `row` on, 16 columns from `column` on (RowsOfPanel), or the
// 16 panel rows from `row` on, N columns from `column` on (ColumnsOfPanel; a multiple of 64). d is 4 N / 8 registers.
template <Engine kEngine, int N, Order kOrder, Sign kSign = Sign::Plus>
__device__ __forceinline__ void multiply(float* d, const uint32_t (&a)[4], Panel panel, int row, int column, Into into,
                                         int lane) {
  if constexpr (kEngine == Engine::Warpgroup) {
    // Starts inside a swizzled row are plain byte offsets: the hardware permutes the final address. `row` and `column`
    // are constants of the caller, so that one addition makes a descriptor.
    const int start = (column / kSlab * panel.rows + row) * kSlabRowBytes + column % kSlab * 2;
    wgmma<N, kOrder, kSign>(d, a, panel_descriptor(panel.unit + static_cast<uint32_t>(start / 16), panel.rows), into);
  } else {
    if (into == Into::Set) {
#pragma unroll
      for (int i = 0; i < N / 2; ++i) {
        d[i] = 0.0F;
      }
    }
    uint32_t signed_a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      signed_a[i] = kSign == Sign::Plus ? a[i] : a[i] ^ 0x80008000U;
    }
#pragma unroll
    for (int n = 0; n < N / 16; ++n) {
      uint32_t b[4];
      if constexpr (kOrder == Order::RowsOfPanel) {
        load_b<kOrder>(b, panel, row + 16 * n, column, lane);
      } else {
        load_b<kOrder>(b, panel, row, column + 16 * n, lane);
      }
      mma_f16(d + 8 * n, signed_a, b[0], b[1]);
      mma_f16(d + 8 * n + 4, signed_a, b[2], b[3]);
    }
  }
}

// Where a register of a [64, columns] accumulator lies: row of the warpgroup, column.
__device__ __forceinline__ int register_row(int i, int warp, int lane) { return warp % 4 * 16 + lane / 4 + i / 2 % 2 * 8; }
__device__ __forceinline__ int register_column(int i, int lane) { return i / 4 * 8 + lane % 4 * 2 + i % 2; }

template <Engine kEngine>
__device__ __forceinline__ void begin_products() {
  if constexpr (kEngine == Engine::Warpgroup) {
    wgmma_fence();
  }
}
template <Engine kEngine>
__device__ __forceinline__ void end_products() {
  if constexpr (kEngine == Engine::Warpgroup) {
    wgmma_commit();
  }
}
// Waits until at most kLeft groups of products are unfinished.
template <Engine kEngine, int kLeft>
__device__ __forceinline__ void wait_products() {
  if constexpr (kEngine == Engine::Warpgroup) {
    wgmma_wait<kLeft>();
  }
}
template <Engine kEngine, class T, int N>
__device__ __forceinline__ void hold_all(T (&registers)[N]) {
  if constexpr (kEngine == Engine::Warpgroup) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      hold(registers[i]);
    }
  }
}

}  // namespace longhaul::kda::cuda
