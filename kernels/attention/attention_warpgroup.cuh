// Instructions and tiles of the tensor-core kernels of causal attention on Hopper (sm_90a). A warpgroup (4 warps) multiplies
// 64 rows at a time. Its accumulators of 64 x n: warp w has rows 16 w .. 16 w + 15; thread l of it has rows l / 4 and l / 4 + 8 and,
// of every 8 columns, 2 (l % 4) and the next: d[4 j + (0..3)] are (row, 8 j), (row, 8 j + 1), (row + 8, 8 j), (row + 8, 8 j + 1).
// Rounded to bf16, two neighbouring groups of 8 columns are a left operand.
//
// Tiles in shared memory are slabs of 64 columns; a row of a slab is 128 bytes, its eight units of 16 bytes permuted by the
// row number, which is what the tensor cores call a 128-byte swizzle. They read such a tile by rows or by columns.
#pragma once

#include "kernels/attention/attention_tiles.cuh"

namespace longhaul::gpu::attention {

// Kernels are empty where the compiler does not know the instructions; nothing starts them there.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define LH_ATTENTION_SM90A 1
#else
#define LH_ATTENTION_SM90A 0
#endif

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
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
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

// Before products: registers are handed over. After them: wait until they are back.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void finish_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
// Keeps the compiler from moving the use of an accumulator across a fence or a wait.
template <int N>
__device__ __forceinline__ void hold(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    asm volatile("" : "+f"(d[i])::"memory");
  }
}
template <int M, int N>
__device__ __forceinline__ void hold(float (&d)[M][N]) {
#pragma unroll
  for (int i = 0; i < M; ++i) {
    hold(d[i]);
  }
}

// d [64, 32] (=, +=) a [64, 16] b [32, 16]^T, both in shared memory.
__device__ __forceinline__ void multiply_rows(float (&d)[16], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, %16, %17, p, 1, 1, 0, 0;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "l"(a), "l"(b), "r"(add ? 1 : 0));
}

// d [64, 64] (=, +=) a [64, 16] b [64, 16]^T, both in shared memory.
__device__ __forceinline__ void multiply_rows(float (&d)[32], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, p, 1, 1, 0, 0;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(add ? 1 : 0));
}

// d [64, 128] (=, +=) a [64, 16] b [128, 16]^T, both in shared memory.
__device__ __forceinline__ void multiply_rows(float (&d)[64], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, p, 1, 1, 0, 0;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"(add ? 1 : 0));
}

// d [64, 64] += a [64, 16], in registers, times b [16, 64], rows of shared memory.
__device__ __forceinline__ void add_product(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// The left operand for 16 columns of an accumulator, from column 16 k on.
template <int N>
__device__ __forceinline__ void left_operand(const float (&d)[N], int k, uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    a[i] = pack(d[8 * k + 2 * i], d[8 * k + 2 * i + 1]);
  }
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
