// Where the kernels on Hopper's tensor cores fit; see grouped_linear_warpgroup.h.
#include "kernels/grouped_linear/grouped_linear_warpgroup.h"

#include "kernels/grouped_linear/tensor_map.h"
#include "kernels/grouped_linear/warpgroup_tiles.cuh"

namespace longhaul::cuda {
namespace {

#ifdef LH_GROUPED_WARPGROUP
constexpr bool kIsBuilt = true;
#else
constexpr bool kIsBuilt = false;
#endif
constexpr int64_t kMostRows = int64_t{1} << 30;  // the copy engine counts rows in 32 bits

}  // namespace

bool fits_warpgroup(ExecContext& ctx, int64_t rows, int64_t experts, std::initializer_list<const TensorView*> views) {
  if (!kIsBuilt || rows > kMostRows || experts > warpgroup::kMostExperts || !gpu::is_wide(views)) {
    return false;
  }
  for (const TensorView* view : views) {
    if (view->numel() == 0) {
      return false;
    }
  }
  int major = 0;
  LH_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ctx.cuda_context().device().index));
  return major == 9 && has_tensor_maps();
}

}  // namespace longhaul::cuda
