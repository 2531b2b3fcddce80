// The backward pass of Kimi Delta Attention on a GPU; see kda_cuda.h.
#include "kernels/kda/cuda/backward_plan.cuh"

namespace longhaul::kda::cuda {
namespace {

template <int D>
int backward_of(const BackwardArgs& args) {
  const BackwardPlan<D> plan(args);
  int error = plan.tables(0);
  error = plan.prepare(error);
  if (plan.has_segments()) {
    error = plan.transfer(error);
  }
  error = plan.walk(error);
  return plan.gradients(error);
}

}  // namespace

int64_t backward_workspace_bytes(const Sizes& sizes, int64_t segment_chunks) {
  Cutter cutter(nullptr);
  static_cast<void>(take_backward(cutter, sizes, segment_chunks_of(sizes, segment_chunks)));
  return cutter.used();
}

int backward(const BackwardArgs& args) { return args.sizes.head_dim == 128 ? backward_of<128>(args) : backward_of<64>(args); }

}  // namespace longhaul::kda::cuda
