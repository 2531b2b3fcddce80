// The forward pass of Kimi Delta Attention on a GPU; see kda_cuda.h.
#include "kernels/kda/cuda/forward_plan.cuh"

namespace longhaul::kda::cuda {
namespace {

template <int D>
int forward_of(const ForwardArgs& args) {
  const ForwardPlan<D> plan(args);
  int error = plan.tables(0);
  if (plan.uses_flow()) {
    return plan.flow(error);
  }
  error = plan.prepare(error);
  if (plan.has_segments()) {
    error = plan.transfer(error);
  }
  return plan.walk(error);
}

}  // namespace

int forward(const ForwardArgs& args) { return args.sizes.head_dim == 128 ? forward_of<128>(args) : forward_of<64>(args); }

}  // namespace longhaul::kda::cuda
