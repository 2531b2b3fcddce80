// The chunk table, made on the GPU because the host does not know where documents begin: how many chunks come before each
// document, and for each chunk its first token and number of rows.
#include "kernels/kda/general/arguments.cuh"

namespace longhaul::cuda::kda_general {
namespace {

constexpr int kTableThreads = 1024;

// first_chunks[d]: chunks of all documents before d. One block; each thread adds up consecutive documents, then an inclusive
// scan over threads.
__global__ void __launch_bounds__(kTableThreads) count_chunks_kernel(const int64_t* bounds, int64_t documents, int64_t max_chunks,
                                                                      int64_t* first_chunks) {
  __shared__ int64_t sums[kTableThreads];
  const auto chunks_of = [&](int64_t d) { return gpu::ceil_div(max(bounds[d + 1] - bounds[d], int64_t{0}), kChunk); };
  const int64_t each = gpu::ceil_div(documents, kTableThreads);
  const int64_t begin = min(threadIdx.x * each, documents), end = min(begin + each, documents);
  int64_t sum = 0;
  for (int64_t d = begin; d < end; ++d) {
    sum += chunks_of(d);
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int distance = 1; distance < kTableThreads; distance *= 2) {
    const int64_t other = static_cast<int>(threadIdx.x) >= distance ? sums[threadIdx.x - distance] : 0;
    __syncthreads();
    sums[threadIdx.x] += other;
    __syncthreads();
  }
  int64_t before = sums[threadIdx.x] - sum;
  for (int64_t d = begin; d < end; ++d) {
    first_chunks[d] = min(before, max_chunks);
    before += chunks_of(d);
  }
  if (threadIdx.x == 0) {
    first_chunks[documents] = min(sums[kTableThreads - 1], max_chunks);
  }
}

__global__ void __launch_bounds__(kThreads) list_chunks_kernel(const int64_t* bounds, int64_t documents, const int64_t* first_chunks,
                                                                int64_t* chunks) {
  const int64_t chunk = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (chunk >= first_chunks[documents]) {
    return;
  }
  int64_t low = 0, high = documents;  // the last document whose chunks begin at or before this one; empty ones come earlier
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (first_chunks[middle] <= chunk) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int64_t token = bounds[low] + (chunk - first_chunks[low]) * kChunk;
  chunks[2 * chunk] = token;
  chunks[2 * chunk + 1] = min(int64_t{kChunk}, bounds[low + 1] - token);
}

}  // namespace

void make_chunks(ExecContext& ctx, const TensorView& cu_seqlens, int64_t tokens, const KdaScratch& scratch) {
  const int64_t documents = cu_seqlens.size(0) - 1, max_chunks = kda_max_chunks(tokens, documents);
  const auto* bounds = cu_seqlens.data<int64_t>();
  auto* first_chunks = scratch.first_chunks.data<int64_t>();
  count_chunks_kernel<<<1, kTableThreads, 0, gpu::stream_of(ctx)>>>(bounds, documents, max_chunks, first_chunks);
  LH_CHECK_LAUNCH(ctx, "kda chunk counts");
  if (max_chunks > 0) {
    const auto blocks = static_cast<unsigned>(gpu::ceil_div(max_chunks, kThreads));
    list_chunks_kernel<<<blocks, kThreads, 0, gpu::stream_of(ctx)>>>(bounds, documents, first_chunks, scratch.chunks.data<int64_t>());
    LH_CHECK_LAUNCH(ctx, "kda chunk list");
  }
}

}  // namespace longhaul::cuda::kda_general
