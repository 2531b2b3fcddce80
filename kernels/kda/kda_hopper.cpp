// See kda_hopper.h: which calls it serves, and scratch. Needs no CUDA, so that planning works without it.
#include "kernels/kda/kda_hopper.h"

#include "kernels/kda/cuda/kda_cuda.h"

namespace longhaul::cuda {
namespace {

template <class Op>
bool is_served(Device device, const Op& op) {
  const int64_t dim = op.q.size(2);
  return op.q.dtype() == DType::BF16 && (dim == 64 || dim == 128) && op.v.size(2) == dim && has_kda_hopper(device);
}

template <class Op>
kda::cuda::Sizes sizes_of(const Op& op) {
  return {.tokens = op.q.size(0), .heads = op.q.size(1), .head_dim = op.q.size(2), .documents = op.cu_seqlens.size(0) - 1};
}

}  // namespace

bool is_for_kda_hopper(Device device, const KdaForward& op) { return is_served(device, op); }
bool is_for_kda_hopper(Device device, const KdaBackward& op) { return is_served(device, op); }

TensorView take_kda_hopper_scratch(Arena& arena, const KdaForward& op) {
  return take(arena, "kda.workspace", DType::U8, {kda::cuda::forward_workspace_bytes(sizes_of(op))});
}
TensorView take_kda_hopper_scratch(Arena& arena, const KdaBackward& op) {
  return take(arena, "kda.workspace", DType::U8, {kda::cuda::backward_workspace_bytes(sizes_of(op))});
}

}  // namespace longhaul::cuda
