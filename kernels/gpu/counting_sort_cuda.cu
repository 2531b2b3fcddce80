// See counting_sort.h. Each block counts its keys; one block adds up the counts, bucket by bucket over blocks; then each
// block ranks its keys warp after warp, so that equal keys keep their order.
#include "kernels/gpu/counting_sort.h"
#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/sort_block.h"

namespace longhaul::cuda {
namespace {

using gpu::stream_of;

constexpr int kBlock = static_cast<int>(kSortBlock);
constexpr int kWarps = kBlock / 32;

struct Keys {
  const int32_t* keys;
  int64_t n;
  int32_t buckets, shift, mask;

  // -1 for keys without a bucket.
  __device__ int32_t bucket(int64_t i) const {
    const int32_t key = keys[i];
    const int32_t bucket = (key >> shift) & mask;
    return key >= 0 && bucket < buckets ? bucket : -1;
  }
};

__global__ void __launch_bounds__(kBlock) count_kernel(Keys keys, int32_t* counts) {
  extern __shared__ int32_t mine[];
  for (int32_t b = static_cast<int32_t>(threadIdx.x); b < keys.buckets; b += kBlock) {
    mine[b] = 0;
  }
  __syncthreads();
  const int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i < keys.n) {
    const int32_t bucket = keys.bucket(i);
    if (bucket >= 0) {
      atomicAdd(&mine[bucket], 1);
    }
  }
  __syncthreads();
  for (int32_t b = static_cast<int32_t>(threadIdx.x); b < keys.buckets; b += kBlock) {
    counts[int64_t{blockIdx.x} * keys.buckets + b] = mine[b];
  }
}

// counts[block, b] becomes the keys of bucket b in earlier blocks, and offsets the bounds of the buckets. One block.
__global__ void __launch_bounds__(kBlock) scan_kernel(int32_t* counts, int64_t blocks, int32_t buckets, int64_t* offsets) {
  extern __shared__ int32_t totals[];  // [buckets]
  __shared__ int64_t sums[kBlock];
  for (int32_t b = static_cast<int32_t>(threadIdx.x); b < buckets; b += kBlock) {
    int32_t before = 0;
    for (int64_t block = 0; block < blocks; ++block) {
      const int32_t count = counts[block * buckets + b];
      counts[block * buckets + b] = before;
      before += count;
    }
    totals[b] = before;
  }
  __syncthreads();
  // Each thread takes consecutive buckets; then an inclusive scan over threads.
  const int32_t each = (buckets + kBlock - 1) / kBlock, first = static_cast<int32_t>(threadIdx.x) * each, last = min(first + each, buckets);
  int64_t sum = 0;
  for (int32_t b = first; b < last; ++b) {
    sum += totals[b];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int distance = 1; distance < kBlock; distance *= 2) {
    const int64_t other = static_cast<int>(threadIdx.x) >= distance ? sums[threadIdx.x - distance] : 0;
    __syncthreads();
    sums[threadIdx.x] += other;
    __syncthreads();
  }
  int64_t offset = sums[threadIdx.x] - sum;
  for (int32_t b = first; b < last; ++b) {
    offsets[b] = offset;
    offset += totals[b];
  }
  if (threadIdx.x == 0) {
    offsets[buckets] = sums[kBlock - 1];
  }
}

__global__ void __launch_bounds__(kBlock) place_kernel(Keys keys, const int32_t* counts, const int64_t* offsets, int64_t* places) {
  extern __shared__ int32_t next[];  // [buckets]: keys of the bucket before the warp at hand, in this block
  for (int32_t b = static_cast<int32_t>(threadIdx.x); b < keys.buckets; b += kBlock) {
    next[b] = 0;
  }
  const int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  const int32_t bucket = i < keys.n ? keys.bucket(i) : -1;
  const unsigned equal = __match_any_sync(0xffffffffu, bucket);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int rank = __popc(equal & ((1u << lane) - 1));
  int32_t before = 0;
  for (int w = 0; w < kWarps; ++w) {
    __syncthreads();
    if (w == warp && bucket >= 0) {
      before = next[bucket];
    }
    __syncwarp();
    if (w == warp && bucket >= 0 && rank == 0) {
      next[bucket] = before + __popc(equal);
    }
  }
  if (bucket >= 0) {
    places[i] = offsets[bucket] + counts[int64_t{blockIdx.x} * keys.buckets + bucket] + before + rank;
  }
}

}  // namespace

void counting_sort(ExecContext& ctx, const CountingSort& op) {
  const Keys keys{op.keys, op.n, static_cast<int32_t>(op.buckets), op.shift, op.mask};
  const int64_t blocks = op.counts.size(0);
  auto* counts = op.counts.data<int32_t>();
  const size_t shared = static_cast<size_t>(op.buckets) * sizeof(int32_t);
  if (blocks > 0) {
    count_kernel<<<static_cast<unsigned>(blocks), kBlock, shared, stream_of(ctx)>>>(keys, counts);
    LH_CHECK_LAUNCH(ctx, "counting_sort");
  }
  scan_kernel<<<1, kBlock, shared, stream_of(ctx)>>>(counts, blocks, keys.buckets, op.offsets);
  LH_CHECK_LAUNCH(ctx, "counting_sort");
  if (blocks > 0) {
    place_kernel<<<static_cast<unsigned>(blocks), kBlock, shared, stream_of(ctx)>>>(keys, counts, op.offsets, op.places);
    LH_CHECK_LAUNCH(ctx, "counting_sort");
  }
}

}  // namespace longhaul::cuda
