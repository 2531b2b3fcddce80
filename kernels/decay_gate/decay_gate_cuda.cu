// Forward is one pass. In backward a thread walks over a share of the tokens for one channel, with the sums of both
// parameter gradients in registers.
#include "kernels/decay_gate/decay_gate_cuda.h"
#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/math.cuh"
#include "kernels/gpu/partial_sums.h"

namespace longhaul::cuda {
namespace {

using namespace gpu;

template <class T>
struct Forward {
  const T* z;
  const float *a_log, *dt_bias;
  float* g;
  int64_t channels, dim;
  float bound;
  bool bounded;
  template <int W>
  __device__ void apply(int64_t i) const {
    const int64_t channel = i % channels;
    const float rate = expf(a_log[channel / dim]);
    float v[W], bias[W];
    load<W>(z + i, v);
    load<W>(dt_bias + channel, bias);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const float u = v[j] + bias[j];
      v[j] = bounded ? bound * sigmoid(rate * u) : -rate * softplus(u);
    }
    store<W>(g + i, v);
  }
};

template <class T>
struct Backward {
  const float* dg;
  const T* z;
  const float *a_log, *dt_bias;
  T* dz;
  float *a_log_terms, *dt_bias_sums;  // [blocks, channels]
  int64_t tokens, channels, dim, share;
  float bound;
  bool bounded;
};

// With u = z + dt_bias, A = exp(a_log), s = sigmoid(A u):
//   Bounded: dz = dg bound s' A, da_log = sum of dz u.   Softplus: dz = -dg A sigmoid(u), da_log = sum of dg g.
template <class T>
__global__ void __launch_bounds__(kThreads) backward_kernel(Backward<T> p) {
  const int64_t channel = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (channel >= p.channels) {
    return;
  }
  const float rate = expf(p.a_log[channel / p.dim]), bias = p.dt_bias[channel];
  const int64_t begin = int64_t{blockIdx.y} * p.share, end = min(begin + p.share, p.tokens);
  float a_log_term = 0, dt_bias_sum = 0;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t at = t * p.channels + channel;
    const float u = to_float(p.z[at]) + bias, dg = p.dg[at];
    float dz;
    if (p.bounded) {
      dz = dg * p.bound * sigmoid_and_derivative(rate * u).derivative * rate;
      a_log_term += dz * u;
    } else {
      dz = -dg * rate * sigmoid(u);
      a_log_term += dg * (-rate * softplus(u));
    }
    p.dz[at] = from_float<T>(dz);
    dt_bias_sum += dz;
  }
  p.a_log_terms[blockIdx.y * p.channels + channel] = a_log_term;
  p.dt_bias_sums[blockIdx.y * p.channels + channel] = dt_bias_sum;
}

// da_log[head] += the head's terms over shares and channels; a block for each head.
__global__ void __launch_bounds__(kThreads) add_head_sums_kernel(const float* terms, int64_t blocks, int64_t channels, int64_t dim, float* da_log) {
  const int64_t first = blockIdx.x * dim;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < blocks * dim; i += kThreads) {
    sum += terms[i / dim * channels + first + i % dim];
  }
  sum = Group<kThreads>::sum(sum);
  if (threadIdx.x == 0) {
    da_log[blockIdx.x] += sum;
  }
}

}  // namespace

void decay_gate_forward(ExecContext& ctx, const DecayGateForward& op) {
  const int64_t dim = op.z.size(2);
  dispatch_compute(op.z.dtype(), "decay_gate_forward", [&](auto zero) {
    using T = decltype(zero);
    launch_each(ctx, "decay_gate_forward", op.z.numel(), is_wide({&op.z, &op.g}) && is_aligned({op.dt_bias.raw()}),
                Forward<T>{typed<T>(op.z), op.a_log.data<float>(), op.dt_bias.data<float>(), op.g.data<float>(), op.z.size(1) * dim, dim,
                           static_cast<float>(op.lower_bound), op.kind == DecayKind::Bounded});
  });
}

void decay_gate_backward(ExecContext& ctx, const DecayGateBackward& op, const DecayGateScratch& scratch) {
  const int64_t tokens = op.z.size(0), heads = op.z.size(1), dim = op.z.size(2), channels = heads * dim;
  const int64_t blocks = scratch.a_log_terms.size(0);
  if (channels == 0) {
    return;
  }
  dispatch_compute(op.z.dtype(), "decay_gate_backward", [&](auto zero) {
    using T = decltype(zero);
    const dim3 grid(static_cast<unsigned>(ceil_div(channels, kThreads)), static_cast<unsigned>(blocks));
    backward_kernel<T><<<grid, kThreads, 0, stream_of(ctx)>>>({op.dg.data<float>(), typed<T>(op.z), op.a_log.data<float>(), op.dt_bias.data<float>(),
                                                              typed<T>(op.dz), scratch.a_log_terms.data<float>(), scratch.dt_bias_sums.data<float>(),
                                                              tokens, channels, dim, ceil_div(tokens, blocks), static_cast<float>(op.lower_bound),
                                                              op.kind == DecayKind::Bounded});
  });
  LH_CHECK_LAUNCH(ctx, "decay_gate_backward");
  add_partial_sums(ctx, scratch.dt_bias_sums, op.ddt_bias);
  add_head_sums_kernel<<<static_cast<unsigned>(heads), kThreads, 0, stream_of(ctx)>>>(scratch.a_log_terms.data<float>(), blocks, channels, dim,
                                                                                     op.da_log.data<float>());
  LH_CHECK_LAUNCH(ctx, "decay_gate_backward");
}

}  // namespace longhaul::cuda
