// A tile of a matrix product on tensor cores: C[128, 128] = A[128, k] B[k, 128] with bf16 factors and fp32 sums, by 256
// threads. Each factor may be stored with its inner dimension along k or across it. mma.sync of Ampere, which runs on all
// chips since; three stages of cp.async hide the loads.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace longhaul::cuda {

inline constexpr int kTile = 128;     // rows and columns of C
inline constexpr int kTileDepth = 32;  // of k at a time
inline constexpr int kStages = 3;

enum class Inner : uint8_t { AlongK, AcrossK };

// One factor: element (i, k) with i a row of A or a column of B.
struct Factor {
  const __nv_bfloat16* data;  // at i = 0, k = 0 of the tile's matrix
  int64_t stride;             // between elements of the outer stored dimension
  int64_t begin;              // first i of the tile
  int64_t limit;              // i at and beyond it are zero
};

// 16 bytes of padding a row keep ldmatrix off shared banks.
template <Inner kInner>
struct StageLayout {
  static constexpr int kRowElements = (kInner == Inner::AlongK ? kTileDepth : kTile) + 8;
  static constexpr int kRowCount = kInner == Inner::AlongK ? kTile : kTileDepth;
  static constexpr int kElements = kRowElements * kRowCount;
};

template <Inner kA, Inner kB>
inline constexpr int kSharedBytes = kStages * (StageLayout<kA>::kElements + StageLayout<kB>::kElements) * 2;

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// Enqueues k in [k_begin, k_begin + kTileDepth) of a factor; what lies outside becomes zero. kAligned: addresses, strides and
// limits allow 16 bytes at a time.
template <Inner kInner, bool kAligned>
__device__ inline void load_stage(__nv_bfloat16* stage, const Factor& f, int64_t k_begin, int64_t k_limit) {
  constexpr int kChunks = StageLayout<kInner>::kRowCount * (kInner == Inner::AlongK ? kTileDepth : kTile) / 8;
  constexpr int kPerRow = (kInner == Inner::AlongK ? kTileDepth : kTile) / 8;
#pragma unroll
  for (int chunk = static_cast<int>(threadIdx.x); chunk < kChunks; chunk += 256) {
    const int row = chunk / kPerRow, column = chunk % kPerRow * 8;
    const int64_t i = f.begin + (kInner == Inner::AlongK ? row : column), k = k_begin + (kInner == Inner::AlongK ? column : row);
    const __nv_bfloat16* from = f.data + (kInner == Inner::AlongK ? i * f.stride + k : k * f.stride + i);
    __nv_bfloat16* to = stage + row * StageLayout<kInner>::kRowElements + column;
    if constexpr (kAligned) {
      const int bytes = i < f.limit && k < k_limit ? 16 : 0;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(bytes == 0 ? f.data : from), "r"(bytes));
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int64_t ie = i + (kInner == Inner::AlongK ? 0 : e), ke = k + (kInner == Inner::AlongK ? e : 0);
        to[e] = ie < f.limit && ke < k_limit ? from[e] : __nv_bfloat16{};
      }
    }
  }
}

__device__ inline void commit_stage() { asm volatile("cp.async.commit_group;"); }
template <int kLeft>
__device__ inline void wait_stage() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft));
}

template <bool kTransposed>
__device__ inline void load_matrices(uint32_t (&r)[4], const __nv_bfloat16* from) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(from)));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(from)));
  }
}

__device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The sums of one thread: warps lie 2 x 4 over the tile, each with 64 x 32 of it in pieces of 16 x 8.
struct TileSums {
  static constexpr int kRowPieces = 4, kColumnPieces = 4;
  float c[kRowPieces][kColumnPieces][4] = {};

  // Calls fn(row, column, value, value of column + 1) for the thread's elements of the tile.
  template <class Fn>
  __device__ void for_each_pair(Fn&& fn) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kRowPieces; ++i) {
#pragma unroll
      for (int j = 0; j < kColumnPieces; ++j) {
        const int row = warp / 4 * 64 + i * 16 + lane / 4, column = warp % 4 * 32 + j * 8 + lane % 4 * 2;
        fn(row, column, c[i][j][0], c[i][j][1]);
        fn(row + 8, column, c[i][j][2], c[i][j][3]);
      }
    }
  }
};

// One stage's part of the sums.
template <Inner kA, Inner kB>
__device__ inline void multiply_stage(TileSums& sums, const __nv_bfloat16* a_stage, const __nv_bfloat16* b_stage) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp / 4 * 64, column = warp % 4 * 32;
  const int matrix = lane / 8, r = lane % 8;  // the row of a matrix whose address this lane gives
#pragma unroll
  for (int k = 0; k < kTileDepth; k += 16) {
    uint32_t a[TileSums::kRowPieces][4], b[TileSums::kColumnPieces / 2][4];
#pragma unroll
    for (int i = 0; i < TileSums::kRowPieces; ++i) {
      const int m = row + i * 16 + matrix % 2 * 8, kk = k + matrix / 2 * 8;
      constexpr int kRow = StageLayout<kA>::kRowElements;
      load_matrices<kA == Inner::AcrossK>(a[i], kA == Inner::AlongK ? a_stage + (m + r) * kRow + kk : a_stage + (kk + r) * kRow + m);
    }
#pragma unroll
    for (int j = 0; j < TileSums::kColumnPieces / 2; ++j) {
      const int n = column + j * 16 + matrix / 2 * 8, kk = k + matrix % 2 * 8;
      constexpr int kRow = StageLayout<kB>::kRowElements;
      load_matrices<kB == Inner::AcrossK>(b[j], kB == Inner::AlongK ? b_stage + (n + r) * kRow + kk : b_stage + (kk + r) * kRow + n);
    }
#pragma unroll
    for (int i = 0; i < TileSums::kRowPieces; ++i) {
#pragma unroll
      for (int j = 0; j < TileSums::kColumnPieces; ++j) {
        multiply(sums.c[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
}

// The whole product; `shared` holds kSharedBytes. All 256 threads must call it.
template <Inner kA, Inner kB, bool kAligned>
__device__ inline void multiply_tile(TileSums& sums, __nv_bfloat16* shared, const Factor& a, const Factor& b, int64_t k_limit) {
  constexpr int kAElements = StageLayout<kA>::kElements, kStage = kAElements + StageLayout<kB>::kElements;
  const int64_t steps = (k_limit + kTileDepth - 1) / kTileDepth;
  const auto fetch = [&](int64_t step) {
    if (step < steps) {
      __nv_bfloat16* stage = shared + step % kStages * kStage;
      load_stage<kA, kAligned>(stage, a, step * kTileDepth, k_limit);
      load_stage<kB, kAligned>(stage + kAElements, b, step * kTileDepth, k_limit);
    }
    commit_stage();
  };
#pragma unroll
  for (int step = 0; step + 1 < kStages; ++step) {
    fetch(step);
  }
  for (int64_t step = 0; step < steps; ++step) {
    wait_stage<kStages - 2>();
    __syncthreads();  // the stage has arrived for all, and all are done with the one that is fetched next
    fetch(step + kStages - 1);
    const __nv_bfloat16* stage = shared + step % kStages * kStage;
    multiply_stage<kA, kB>(sums, stage, stage + kAElements);
  }
}

}  // namespace longhaul::cuda
