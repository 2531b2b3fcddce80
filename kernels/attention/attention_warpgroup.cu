// Where the tensor-core kernels of causal attention fit; see attention_warpgroup.h.
#include "kernels/attention/attention_warpgroup.h"

#include "kernels/attention/attention_warpgroup.cuh"

namespace longhaul::cuda {
namespace {

#ifdef LH_ATTENTION_WARPGROUP
constexpr bool kIsBuilt = true;
#else
constexpr bool kIsBuilt = false;
#endif

template <class Op>
bool fits(const ExecContext& ctx, const Op& op) {
  if (!kIsBuilt || op.q.dtype() != DType::BF16 || op.q.size(2) > 192 || op.v.size(2) > 128 || op.scale <= 0) {
    return false;
  }
  int major = 0;
  LH_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ctx.cuda_context().device().index));
  return major == 9 && gpu::is_wide({&op.q, &op.k, &op.v});
}

}  // namespace

bool fits_warpgroup(ExecContext& ctx, const AttentionForward& op) { return fits(ctx, op) && gpu::is_wide({&op.o}); }
bool fits_warpgroup(ExecContext& ctx, const AttentionBackward& op) {
  return fits(ctx, op) && gpu::is_wide({&op.d_o, &op.dq, &op.dk, &op.dv});
}

}  // namespace longhaul::cuda
