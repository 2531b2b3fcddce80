// The CUDA kernels of Kimi Delta Attention behind a C interface, for implementations.py, which calls them through ctypes beside
// published packages. KdaPeerCall has only 8-byte fields, so that the script can mirror it without padding; its pointers are
// those of kernels/kda/cuda/kda_cuda.h. Functions return CUDA's error code of the launches, 0 when all is well.
#include "kernels/kda/cuda/kda_cuda.h"

namespace kda = longhaul::kda::cuda;

extern "C" {

struct KdaPeerCall {
  int64_t tokens, heads, head_dim, documents;
  int64_t unbounded;    // 1: gates have no lower bound
  int64_t save_images;  // 1: forward leaves backward more than states
  // Inputs: [tokens, heads, head_dim] without gaps. gate and beta_logits (raw inputs) or g and beta, the others null.
  const void *q, *k, *v, *gate, *beta_logits;
  const float *g, *beta, *a_log, *dt_bias;
  const int64_t* cu_seqlens;
  double gate_bound, scale;
  const float* initial_state;
  void* o;
  float* final_state;
  void *saved, *workspace;
  const void* d_o;
  const float* dfinal_state;
  float *dq, *dk, *dv, *dg, *dbeta, *dinitial_state;
  CUstream_st* stream;
};

}  // extern "C"

namespace {

kda::Sizes sizes_of(const KdaPeerCall& call) {
  return {.tokens = call.tokens, .heads = call.heads, .head_dim = call.head_dim, .documents = call.documents,
          .saving = call.save_images == 0 ? kda::Saving::States : kda::Saving::Images};
}

kda::InputArrays inputs_of(const KdaPeerCall& call) {
  const int64_t stride = call.heads * call.head_dim;
  return {.q = call.q, .k = call.k, .v = call.v, .q_stride = stride, .k_stride = stride, .v_stride = stride,
          .g = call.g, .beta = call.beta, .g_stride = stride, .gate = call.gate, .beta_logits = call.beta_logits,
          .a_log = call.a_log, .dt_bias = call.dt_bias, .gate_bound = static_cast<float>(call.gate_bound),
          .cu_seqlens = call.cu_seqlens, .scale = static_cast<float>(call.scale),
          .gates = call.unbounded == 0 ? kda::Gates::Bounded : kda::Gates::Unbounded};
}

}  // namespace

extern "C" {

// bytes: [3] workspace of forward, of backward, and what forward saves for backward.
void lh_kda_bytes(const KdaPeerCall* call, int64_t* bytes) {
  bytes[0] = kda::forward_workspace_bytes(sizes_of(*call));
  bytes[1] = kda::backward_workspace_bytes(sizes_of(*call));
  bytes[2] = kda::saved_bytes(sizes_of(*call));
}

int lh_kda_forward(const KdaPeerCall* call) {
  return kda::forward({.sizes = sizes_of(*call), .in = inputs_of(*call), .initial_state = call->initial_state, .o = call->o,
                       .o_stride = call->heads * call->head_dim, .final_state = call->final_state, .saved = call->saved,
                       .workspace = call->workspace, .stream = call->stream});
}

int lh_kda_backward(const KdaPeerCall* call) {
  return kda::backward({.sizes = sizes_of(*call), .in = inputs_of(*call), .d_o = call->d_o,
                        .d_o_stride = call->heads * call->head_dim, .dfinal_state = call->dfinal_state, .saved = call->saved,
                        .dq = call->dq, .dk = call->dk, .dv = call->dv, .dg = call->dg, .dbeta = call->dbeta,
                        .dinitial_state = call->dinitial_state, .workspace = call->workspace, .stream = call->stream});
}

}  // extern "C"
