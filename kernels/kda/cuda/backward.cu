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
  error = plan.gradients(error);
  return plan.gate_sums(error);
}

}  // namespace

int backward(const BackwardArgs& args) { return args.sizes.head_dim == 128 ? backward_of<128>(args) : backward_of<64>(args); }

}  // namespace longhaul::kda::cuda
