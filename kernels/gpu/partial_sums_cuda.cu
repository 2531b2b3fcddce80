// See partial_sums.h. A block sums 32 columns: eight interleaved sums over the shares, then their sum in order.
#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/partial_sums.h"

namespace longhaul::cuda {
namespace {

constexpr int kColumns = 32;
constexpr int kLanes = gpu::kThreads / kColumns;

__global__ void add_partial_sums_kernel(const float* partials, int64_t blocks, int64_t columns, float* gradient) {
  __shared__ float sums[kLanes][kColumns];
  const int lane = static_cast<int>(threadIdx.x) / kColumns, at = static_cast<int>(threadIdx.x) % kColumns;
  const int64_t column = int64_t{blockIdx.x} * kColumns + at;
  float sum = 0;
  if (column < columns) {
    for (int64_t b = lane; b < blocks; b += kLanes) {
      sum += partials[b * columns + column];
    }
  }
  sums[lane][at] = sum;
  __syncthreads();
  if (lane == 0 && column < columns) {
    float total = 0;
    for (int i = 0; i < kLanes; ++i) {
      total += sums[i][at];
    }
    gradient[column] += total;
  }
}

}  // namespace

void add_partial_sums(ExecContext& ctx, const TensorView& partials, const TensorView& gradient) {
  const int64_t columns = partials.size(1);
  if (columns == 0) {
    return;
  }
  const auto blocks = static_cast<unsigned>(gpu::ceil_div(columns, kColumns));
  add_partial_sums_kernel<<<blocks, gpu::kThreads, 0, gpu::stream_of(ctx)>>>(partials.data<float>(), partials.size(0), columns,
                                                                            gradient.data<float>());
  LH_CHECK_LAUNCH(ctx, "add_partial_sums");
}

}  // namespace longhaul::cuda
