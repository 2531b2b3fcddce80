// One pass in float; bias corrections are formed in double on the host.
#include <cmath>

#include "kernels/adamw/adamw_cuda.h"
#include "kernels/gpu/launch.cuh"

namespace longhaul::cuda {
namespace {

using namespace gpu;

struct Update {
  float* parameter;
  const float* gradient;
  float *first, *second;
  float grad_scale, step_size, inverse_root, keep1, take1, keep2, take2, decay, eps;
  template <int W>
  __device__ void apply(int64_t i) const {
    float p[W], g[W], m[W], v[W];
    load<W>(parameter + i, p);
    load<W>(gradient + i, g);
    load<W>(first + i, m);
    load<W>(second + i, v);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      g[j] *= grad_scale;
      m[j] = keep1 * m[j] + take1 * g[j];
      v[j] = keep2 * v[j] + take2 * (g[j] * g[j]);
      p[j] -= decay * p[j] + step_size * m[j] / (sqrtf(v[j]) * inverse_root + eps);
    }
    store<W>(parameter + i, p);
    store<W>(first + i, m);
    store<W>(second + i, v);
  }
};

}  // namespace

void adamw(ExecContext& ctx, const AdamW& op) {
  const auto steps = static_cast<double>(op.step);
  launch_each(ctx, "adamw", op.parameter.numel(), is_aligned({op.parameter.raw(), op.gradient.raw(), op.m.raw(), op.v.raw()}),
              Update{.parameter = op.parameter.data<float>(),
                     .gradient = op.gradient.data<float>(),
                     .first = op.m.data<float>(),
                     .second = op.v.data<float>(),
                     .grad_scale = static_cast<float>(op.grad_scale),
                     .step_size = static_cast<float>(op.learning_rate / (1 - std::pow(op.beta1, steps))),
                     .inverse_root = static_cast<float>(1 / std::sqrt(1 - std::pow(op.beta2, steps))),
                     .keep1 = static_cast<float>(op.beta1),
                     .take1 = static_cast<float>(1 - op.beta1),
                     .keep2 = static_cast<float>(op.beta2),
                     .take2 = static_cast<float>(1 - op.beta2),
                     .decay = static_cast<float>(op.learning_rate * op.weight_decay),
                     .eps = static_cast<float>(op.eps)});
}

}  // namespace longhaul::cuda
