// Where each document's tiles begin; see attention_tiles.cuh. Documents are only known on the device, so kernels are launched for
// the most tiles that there can be, and blocks beyond the last one return.
#include "kernels/attention/attention_tiles.cuh"

namespace longhaul::gpu::attention {
namespace {

constexpr int kScanThreads = 1024;

// One block; each thread has a run of consecutive documents.
__global__ void __launch_bounds__(kScanThreads) start_tiles_kernel(const int64_t* cu_seqlens, int64_t* tile_starts,
                                                                   int64_t documents, int rows) {
  __shared__ int64_t totals[kScanThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t share = ceil_div(documents, kScanThreads);
  const int64_t begin = min(share * thread, documents), end = min(begin + share, documents);
  int64_t sum = 0;
  for (int64_t d = begin; d < end; ++d) {
    sum += ceil_div(cu_seqlens[d + 1] - cu_seqlens[d], rows);
  }
  totals[thread] = sum;
  __syncthreads();
  for (int distance = 1; distance < kScanThreads; distance *= 2) {
    const int64_t before = thread >= distance ? totals[thread - distance] : 0;
    __syncthreads();
    totals[thread] += before;
    __syncthreads();
  }
  int64_t start = totals[thread] - sum;
  for (int64_t d = begin; d < end; ++d) {
    tile_starts[d] = start;
    start += ceil_div(cu_seqlens[d + 1] - cu_seqlens[d], rows);
  }
  if (thread == kScanThreads - 1) {
    tile_starts[documents] = totals[thread];
  }
}

}  // namespace

void start_tiles(ExecContext& ctx, const TensorView& cu_seqlens, const TensorView& tile_starts, int rows) {
  start_tiles_kernel<<<1, kScanThreads, 0, stream_of(ctx)>>>(cu_seqlens.data<int64_t>(), tile_starts.data<int64_t>(),
                                                           cu_seqlens.size(0) - 1, rows);
  LH_CHECK_LAUNCH(ctx, "start_tiles");
}

}  // namespace longhaul::gpu::attention
