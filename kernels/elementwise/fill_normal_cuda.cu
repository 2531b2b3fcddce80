// Random initialisation with the bits of the CPU: the same arithmetic in double (base/philox.h), which the build compiles
// here without fused multiply-adds, as it does for the host.
#include "kernels/elementwise/elementwise_cuda.h"
#include "kernels/gpu/launch.cuh"

namespace longhaul::cuda {
namespace {

using namespace gpu;

template <class T>
struct FillNormal {
  T* x;
  RandomStream stream;
  double mean, stddev;
  int64_t first_index;
  template <int W>
  __device__ void apply(int64_t i) const {
    const double value = mean + stddev * stream.normal(static_cast<uint64_t>(first_index + i));
    if constexpr (std::is_same_v<T, double>) {
      x[i] = value;
    } else {
      x[i] = from_float<T>(static_cast<float>(value));
    }
  }
};

}  // namespace

void fill_normal(ExecContext& ctx, const TensorView& x, RandomStream stream, double mean, double stddev, int64_t first_index) {
  const auto launch = [&](auto zero) {
    using T = decltype(zero);
    launch_singly(ctx, "fill_normal", x.numel(), FillNormal<T>{typed<T>(x), stream, mean, stddev, first_index});
  };
  if (x.dtype() == DType::F64) {
    launch(double{});
    return;
  }
  dispatch_compute(x.dtype(), "fill_normal", launch);
}

}  // namespace longhaul::cuda
