// How a warp writes its 16 rows of a tile of activations. They are laid out in shared memory, 64 columns at a time, for wide
// accesses. Where all 16 rows belong to the expert, the copy engine writes them while the warp goes on; at an expert's end the warp
// writes those that do.
#pragma once

#include "kernels/grouped_linear/warpgroup_tiles.cuh"
#include "kernels/linear/linear.h"

namespace longhaul::cuda::warpgroup {

using gpu::BF16;

// Sixteen rows of 64 columns in shared memory, swizzled as the copy engine reads them: no way of access meets a bank twice.
struct Results {
  uint32_t start;  // a multiple of 1024

  // Units of 16 bytes.
  __device__ __forceinline__ uint32_t at(int row, int unit) const {
    return start + static_cast<uint32_t>(row * kRowBytes + (unit ^ (row % 8)) * 16);
  }
  // Where the thread has row `row` and the pair of columns 8 unit + me.column.
  __device__ __forceinline__ uint32_t pair(int row, int unit, const Consumer& me) const {
    return at(row, unit) + static_cast<uint32_t>(me.column) * 2;
  }
};
__device__ __forceinline__ void store_pair(uint32_t at, float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(pair) : "memory");
}
__device__ __forceinline__ uint32_t load_pair(uint32_t at) {
  uint32_t pair;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(pair) : "r"(at) : "memory");
  return pair;
}
__device__ __forceinline__ void store_unit(uint32_t at, const uint4& x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
__device__ __forceinline__ uint4 load_unit(uint32_t at) {
  uint4 x;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(at) : "memory");
  return x;
}

// The warp's rows of the tensor: `rows` of the 16 from row `first` on belong to the expert, and `columns` exist from `column` on.
struct WarpRows {
  BF16* data;
  int64_t stride;
  int64_t first;
  int rows, column, columns;

  // The unit of 16 bytes that the lane moves: i of 4 for its row, slab of 64 columns.
  __device__ __forceinline__ bool has(int i, int slab, const Consumer& me) const {
    return me.lane / 8 + 4 * i < rows && slab * kSlabWidth + me.lane % 8 * 8 < columns;
  }
  __device__ __forceinline__ uint4* unit(int i, int slab, const Consumer& me) const {
    return reinterpret_cast<uint4*>(data + (first + me.lane / 8 + 4 * i) * stride + column + slab * kSlabWidth + me.lane % 8 * 8);
  }
};

// What is added to, 64 columns ahead of use: the first are read before the products, and the others are fetched into the cache.
template <Accumulate kInto>
struct OldRows {
  __device__ __forceinline__ void load(int, const WarpRows&, const Consumer&) {}
  __device__ __forceinline__ void prefetch(int, const WarpRows&, const Consumer&) {}
  __device__ __forceinline__ void put(const Results&, const Consumer&) {}
};
template <>
struct OldRows<Accumulate::Add> {
  uint4 units[4];

  __device__ __forceinline__ void load(int slab, const WarpRows& from, const Consumer& me) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      units[i] = from.has(i, slab, me) ? *from.unit(i, slab, me) : uint4{};
    }
  }
  __device__ __forceinline__ void prefetch(int slabs, const WarpRows& from, const Consumer& me) {
#pragma unroll
    for (int slab = 1; slab < slabs; ++slab) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (from.has(i, slab, me)) {
          asm volatile("prefetch.global.L2 [%0];" ::"l"(from.unit(i, slab, me)));
        }
      }
    }
  }
  __device__ __forceinline__ void put(const Results& to, const Consumer& me) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      store_unit(to.at(me.lane / 8 + 4 * i, me.lane % 8), units[i]);
    }
  }
};

// The thread's pairs of 64 columns, rounded to bf16, into shared memory; added to what lies there when kInto says so.
template <Accumulate kInto>
__device__ __forceinline__ void put_sums(const float* sums, const Results& to, const Consumer& me) {
  uint32_t before[16] = {};
  if constexpr (kInto == Accumulate::Add) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      before[i] = load_pair(to.pair(me.row + i % 2 * 8, i / 2, me));
    }
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float low = sums[2 * i], high = sums[2 * i + 1];
    if constexpr (kInto == Accumulate::Add) {
      low += __uint_as_float(before[i] << 16);
      high += __uint_as_float(before[i] & 0xffff0000u);
    }
    store_pair(to.pair(me.row + i % 2 * 8, i / 2, me), low, high);
  }
}

// Of the copy engine's stores that this thread started: until their shared memory may be written again, and until they are done.
__device__ __forceinline__ void wait_for_reads() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void finish_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// The warp's sums, [16, N], and for Accumulate::Add the old rows, whose first 64 columns were loaded.
template <int N, Accumulate kInto>
__device__ __forceinline__ void write_rows(const float (&sums)[N / 2], OldRows<kInto>& old, const Results& results, const CUtensorMap& map,
                                           const WarpRows& to, const Consumer& me) {
#pragma unroll
  for (int slab = 0; slab < N / kSlabWidth; ++slab) {
    wait_for_reads();
    __syncwarp();
    if constexpr (kInto == Accumulate::Add) {
      old.put(results, me);
      if (slab + 1 < N / kSlabWidth) {
        old.load(slab + 1, to, me);
      }
      __syncwarp();
    }
    put_sums<kInto>(sums + slab * 32, results, me);
    if (to.rows >= 16) {
      fence_stores();
      __syncwarp();
      if (me.lane == 0 && slab * kSlabWidth < to.columns) {
        store_box(map, results.start, to.column + slab * kSlabWidth, static_cast<int>(to.first));
      }
      continue;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (to.has(i, slab, me)) {
        *to.unit(i, slab, me) = load_unit(results.at(me.lane / 8 + 4 * i, me.lane % 8));
      }
    }
  }
}

}  // namespace longhaul::cuda::warpgroup
