// What the products on Hopper's tensor cores share. A block multiplies tiles of 128 x N, one after the other: a producer thread
// lets the copy engine fill a ring of stages, each 64 of the inner dimension deep, and two warpgroups multiply 64 rows each. The
// producer runs ahead across tiles, so that the next tile's factors arrive while sums are written out.
#pragma once

#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/warpgroup.cuh"

namespace longhaul::cuda::warpgroup {

using namespace gpu::warpgroup;

inline constexpr int kTileRows = 128;
inline constexpr int kDepth = 64;  // of the inner dimension in a stage
inline constexpr int kBlockThreads = 3 * 128;
inline constexpr int kConsumerThreads = 2 * 128;
inline constexpr int kSlabBytes = 64 * kRowBytes;  // 64 rows: what a warpgroup reads of the left factor
inline constexpr int kWarpBytes = 16 * kRowBytes;  // where a warp lays out its results for wide stores
inline constexpr int kMostExperts = 1024;          // of the table in shared memory

template <int N>
struct Shared {
  static constexpr int kStages = N == 256 ? 4 : 6;
  static constexpr uint32_t kLeftBytes = kTileRows * kRowBytes;  // a slab of 128 rows along K, or two of 64
  static constexpr uint32_t kStageBytes = kLeftBytes + N * kRowBytes;
  static constexpr uint32_t kResults = kStages * kStageBytes;
  static constexpr uint32_t kBarriers = kResults + kConsumerThreads / 32 * kWarpBytes;
  static constexpr uint32_t kTable = kBarriers + 2 * kStages * 8;
  static constexpr int64_t bytes(int64_t experts) { return kTable + (experts + 8) * static_cast<int64_t>(sizeof(int2)); }
};
static_assert(Shared<256>::bytes(kMostExperts) <= 227 * 1024 && Shared<128>::bytes(kMostExperts) <= 227 * 1024);

// Where a producer or a consumer is in the ring. A stage is full when its bytes have arrived, and empty when the eight warps of
// the consumers are done with it.
template <int N>
struct Ring {
  uint32_t base;
  int index = 0;
  uint32_t parity = 0;

  __device__ explicit Ring(uint32_t shared) : base(shared) {}
  __device__ __forceinline__ uint32_t left() const { return base + static_cast<uint32_t>(index) * Shared<N>::kStageBytes; }
  __device__ __forceinline__ uint32_t right() const { return left() + Shared<N>::kLeftBytes; }
  __device__ __forceinline__ uint32_t full() const { return base + Shared<N>::kBarriers + static_cast<uint32_t>(index) * 8; }
  __device__ __forceinline__ uint32_t empty() const { return full() + Shared<N>::kStages * 8; }
  __device__ __forceinline__ void advance() {
    if (++index == Shared<N>::kStages) {
      index = 0;
      parity ^= 1;
    }
  }
  // One thread, before all others use the ring.
  __device__ __forceinline__ void init() const {
    for (Ring at = *this; at.parity == 0; at.advance()) {
      barrier_init(at.full(), 1);
      barrier_init(at.empty(), kConsumerThreads / 32);
    }
    fence_barrier_init();
  }
  // The producer's thread: waits for the stage and announces its bytes.
  __device__ __forceinline__ void open() const {
    barrier_wait(empty(), parity ^ 1);
    barrier_expect(full(), Shared<N>::kStageBytes);
  }
};

// A warp of the consumers, and the rows and columns of an accumulator that the thread has.
struct Consumer {
  int warp, lane;   // warp of the eight
  int row, column;  // in the warp's 16 rows (and row + 8); column (and column + 1) of every 8

  __device__ Consumer()
      : warp(static_cast<int>(threadIdx.x) / 32 - 4), lane(static_cast<int>(threadIdx.x) % 32), row(lane / 4), column(lane % 4 * 2) {}
  [[nodiscard]] __device__ __forceinline__ uint32_t left_offset() const { return static_cast<uint32_t>(warp / 4) * kSlabBytes; }
};

// sums [64, N] of the warpgroup = left [64, 64 steps] right [64 steps, N]; steps > 0. prepare(step, ring) may change a stage that
// has arrived. One stage's products stay in flight while the next stage is awaited.
template <int N, Along kLeft, Along kRight, class Prepare>
__device__ __forceinline__ void multiply_tile(float (&sums)[N / 2], Ring<N>& ring, int steps, const Consumer& me, Prepare&& prepare) {
  uint32_t done = 0;
  for (int step = 0; step < steps; ++step) {
    barrier_wait(ring.full(), ring.parity);
    prepare(step, ring);
    const uint32_t left = ring.left() + me.left_offset(), right = ring.right();
    begin_products();
#pragma unroll
    for (uint32_t k = 0; k < kDepth / 16; ++k) {
      multiply<kLeft, kRight>(sums, factor<kLeft>(left + k * kDepthBytes<kLeft>, kSlabBytes),
                              factor<kRight>(right + k * kDepthBytes<kRight>, kSlabBytes), step > 0 || k > 0);
    }
    commit_products();
    wait_products<1>();
    if (step > 0 && me.lane == 0) {
      barrier_arrive(done);
    }
    done = ring.empty();
    ring.advance();
  }
  wait_products<0>();
  hold(sums);
  if (me.lane == 0) {
    barrier_arrive(done);
  }
}

}  // namespace longhaul::cuda::warpgroup
