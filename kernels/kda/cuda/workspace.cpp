// Sizes of workspaces and saved arrays (kda_cuda.h); needs no CUDA, so that planning works without it.
#include "kernels/kda/cuda/workspace.h"

namespace longhaul::kda::cuda {

int64_t forward_workspace_bytes(const Sizes& sizes, int64_t segment_chunks) {
  Cutter cutter(nullptr);
  static_cast<void>(take_forward(cutter, sizes, segment_rule_of(sizes, segment_chunks)));
  static_cast<void>(take_flow(cutter, sizes));
  return cutter.used();
}

int64_t backward_workspace_bytes(const Sizes& sizes, int64_t segment_chunks) {
  Cutter cutter(nullptr);
  static_cast<void>(take_backward(cutter, sizes, segment_rule_of(sizes, segment_chunks)));
  return cutter.used();
}

int64_t saved_bytes(const Sizes& sizes) {
  Cutter cutter(nullptr);
  static_cast<void>(take_saved(cutter, sizes));
  return cutter.used();
}

}  // namespace longhaul::kda::cuda
