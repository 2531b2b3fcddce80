// The values and states with which kda_segment runs kda_forward for transitions.
#include "kernels/kda/general/arguments.cuh"

namespace longhaul::cuda {
namespace {

struct Identity {
  float* to;  // [matrices, n, n]
  int64_t n;

  template <int W>
  __device__ void apply(int64_t i) const {
#pragma unroll
    for (int j = 0; j < W; ++j) {
      to[i + j] = (i + j) % (n * n) % (n + 1) == 0 ? 1.0f : 0.0f;
    }
  }
};

}  // namespace

void make_kda_segment_inputs(ExecContext& ctx, const TensorView& zeros, const TensorView& identities) {
  if (zeros.numel() > 0) {
    LH_CUDA(cudaMemsetAsync(zeros.raw(), 0, static_cast<size_t>(zeros.numel() * size_of(zeros.dtype())), gpu::stream_of(ctx)));
  }
  gpu::launch_each(ctx, "kda_segment", identities.numel(), false, Identity{identities.data<float>(), identities.size(2)});
}

}  // namespace longhaul::cuda
