// The operations of kda_hopper.h by the entry points of kda_cuda.h.
#include "device/cuda_check.h"
#include "kernels/kda/cuda/kda_cuda.h"
#include "kernels/kda/kda_hopper.h"

namespace longhaul::cuda {
namespace {

template <class Op>
kda::cuda::Sizes sizes_of(const Op& op) {
  return {.tokens = op.q.size(0), .heads = op.q.size(1), .head_dim = op.q.size(2), .documents = op.cu_seqlens.size(0) - 1};
}

float* optional(const TensorView& view) { return view.is_present() ? static_cast<float*>(view.raw()) : nullptr; }
float* floats(const TensorView& view) { return static_cast<float*>(view.raw()); }

template <class Op>
kda::cuda::InputArrays inputs_of(const Op& op) {
  const int64_t stride = op.q.size(1) * op.q.size(2);
  return {.q = op.q.raw(),
          .k = op.k.raw(),
          .v = op.v.raw(),
          .q_stride = stride,
          .k_stride = stride,
          .v_stride = stride,
          .g = floats(op.g),
          .beta = floats(op.beta),
          .g_stride = stride,
          .cu_seqlens = static_cast<const int64_t*>(op.cu_seqlens.raw()),
          .scale = static_cast<float>(op.scale),
          .gates = op.tiles == KdaTiles::Dense ? kda::cuda::Gates::Bounded : kda::cuda::Gates::Unbounded};
}

template <class Op>
bool is_nothing(const Op& op) {
  return op.cu_seqlens.size(0) == 1 || op.q.size(1) == 0;
}

}  // namespace

bool has_kda_hopper(Device device) {
#ifdef LH_KDA_HOPPER
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    return true;
  }
  int major = 0;
  int minor = 0;
  LH_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index));
  LH_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index));
  return major == 9 && minor == 0;
#else
  static_cast<void>(device);
  return false;
#endif
}

void kda_hopper_forward(ExecContext& ctx, const KdaForward& op, const TensorView& scratch) {
  if (is_nothing(op)) {
    return;
  }
  LH_CUDA(static_cast<cudaError_t>(kda::cuda::forward({.sizes = sizes_of(op),
                                                       .in = inputs_of(op),
                                                       .initial_state = optional(op.initial_state),
                                                       .o = op.o.raw(),
                                                       .o_stride = op.q.size(1) * op.q.size(2),
                                                       .final_state = optional(op.final_state),
                                                       .saved = optional(op.chunk_states),
                                                       .workspace = scratch.raw(),
                                                       .stream = ctx.cuda_context().stream().handle()})));
  LH_CHECK_LAUNCH(ctx, "kda_forward");
}

void kda_hopper_backward(ExecContext& ctx, const KdaBackward& op, const TensorView& scratch) {
  if (is_nothing(op)) {
    return;
  }
  LH_CUDA(static_cast<cudaError_t>(kda::cuda::backward({.sizes = sizes_of(op),
                                                        .in = inputs_of(op),
                                                        .d_o = op.d_o.raw(),
                                                        .d_o_stride = op.q.size(1) * op.q.size(2),
                                                        .dfinal_state = optional(op.dfinal_state),
                                                        .saved = op.chunk_states.raw(),
                                                        .dq = floats(op.dq),
                                                        .dk = floats(op.dk),
                                                        .dv = floats(op.dv),
                                                        .dg = floats(op.dg),
                                                        .dbeta = floats(op.dbeta),
                                                        .dinitial_state = optional(op.dinitial_state),
                                                        .workspace = scratch.raw(),
                                                        .stream = ctx.cuda_context().stream().handle()})));
  LH_CHECK_LAUNCH(ctx, "kda_backward");
}

}  // namespace longhaul::cuda
