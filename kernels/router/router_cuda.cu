// A warp for a token; expert e belongs to lane e % 32. The best expert is found top_k + 1 times, each time among those not
// yet taken; a tie goes to the lower index. NaN counts as minus infinity, so that routes are distinct valid experts.
#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/math.cuh"
#include "kernels/router/router_cuda.h"

namespace longhaul::cuda {
namespace {

using namespace gpu;

constexpr float kTiny = 1e-20f;  // keeps the weights finite when every selected score underflows
constexpr int kNobody = 0x7fffffff;

struct Forward {
  const float *logits, *bias;
  const int32_t* forced;  // nullptr: selected here
  float *scores, *weights, *cutoff;
  int32_t* experts;
  int64_t tokens;
  int num_experts, top_k;
  float scaling;
};

struct Best {
  float value;
  int expert;
};
__device__ bool is_better(const Best& a, const Best& b) { return a.value > b.value || (a.value == b.value && a.expert < b.expert); }

// The best of the warp's untaken experts, in every lane.
template <int PerLane>
__device__ Best find_best(const float (&values)[PerLane], uint32_t taken, int num_experts) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Best best{-INFINITY, kNobody};
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    const Best candidate{values[i], lane + 32 * i};
    if (candidate.expert < num_experts && (taken >> i & 1u) == 0 && is_better(candidate, best)) {
      best = candidate;
    }
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const Best other{__shfl_xor_sync(0xffffffffu, best.value, distance), __shfl_xor_sync(0xffffffffu, best.expert, distance)};
    if (is_better(other, best)) {
      best = other;
    }
  }
  return best;
}

// PerLane: at most 32, experts that a lane holds.
template <int PerLane>
__global__ void __launch_bounds__(kThreads) forward_kernel(Forward p) {
  const int64_t token = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  if (token >= p.tokens) {
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float* logits = p.logits + token * p.num_experts;
  float* scores = p.scores + token * p.num_experts;
  float values[PerLane];
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    const int e = lane + 32 * i;
    values[i] = -INFINITY;
    if (e < p.num_experts) {
      const float score = sigmoid(logits[e]), value = score + p.bias[e];
      scores[e] = score;
      values[i] = value == value ? value : -INFINITY;
    }
  }
  int32_t* routes = p.experts + token * p.top_k;
  uint32_t taken = 0;
  float cutoff = -INFINITY;
  for (int round = 0; round < min(p.top_k + 1, p.num_experts); ++round) {
    const Best best = find_best<PerLane>(values, taken, p.num_experts);
    if (best.expert % 32 == lane) {
      taken |= 1u << (best.expert / 32);
    }
    if (round == p.top_k) {
      cutoff = best.value;
    } else if (lane == 0 && p.forced == nullptr) {
      routes[round] = best.expert;
    }
  }
  __syncwarp();  // lane 0 reads the scores of all lanes
  if (lane != 0) {
    return;
  }
  p.cutoff[token] = cutoff;
  float total = kTiny;
  for (int c = 0; c < p.top_k; ++c) {
    if (p.forced != nullptr) {
      const int32_t forced = p.forced[token * p.top_k + c];
      const bool exists = forced >= 0 && forced < p.num_experts;
      routes[c] = exists ? forced : 0;
      total = exists ? total : NAN;
    }
    total += scores[routes[c]];
  }
  for (int c = 0; c < p.top_k; ++c) {
    p.weights[token * p.top_k + c] = p.scaling * scores[routes[c]] / total;
  }
}

struct Backward {
  const float *dweights, *scores, *weights;
  const int32_t* experts;
  float* dlogits;  // zeroed
  int64_t num_experts;
  int top_k;
  float scaling;

  // ds_j = (scaling dp_j - sum_r p_r dp_r) / sum_sel s for the selected experts; dlogit = ds s (1 - s).
  template <int W>
  __device__ void apply(int64_t token) const {
    const int32_t* routes = experts + token * top_k;
    const float* s = scores + token * num_experts;
    const float *w = weights + token * top_k, *dw = dweights + token * top_k;
    float total = kTiny, shared = 0;
    for (int c = 0; c < top_k; ++c) {
      total += s[routes[c]];
      shared += w[c] * dw[c];
    }
    for (int c = 0; c < top_k; ++c) {
      const float score = s[routes[c]];
      dlogits[token * num_experts + routes[c]] = (scaling * dw[c] - shared) / total * score * (1.0f - score);
    }
  }
};

}  // namespace

void router_forward(ExecContext& ctx, const RouterForward& op) {
  const int64_t tokens = op.logits.size(0), experts = op.logits.size(1);
  if (tokens == 0) {
    return;
  }
  const Forward p{op.logits.data<float>(), op.bias.data<float>(), op.forced_experts.is_present() ? op.forced_experts.data<int32_t>() : nullptr,
                  op.scores.data<float>(), op.weights.data<float>(), op.cutoff.data<float>(), op.experts.data<int32_t>(), tokens,
                  static_cast<int>(experts), static_cast<int>(op.top_k), static_cast<float>(op.scaling)};
  const unsigned blocks = blocks_for_rows(tokens, 32);
  if (experts <= 128) {
    forward_kernel<4><<<blocks, kThreads, 0, stream_of(ctx)>>>(p);
  } else {
    forward_kernel<32><<<blocks, kThreads, 0, stream_of(ctx)>>>(p);
  }
  LH_CHECK_LAUNCH(ctx, "router_forward");
}

void router_backward(ExecContext& ctx, const RouterBackward& op) {
  if (op.dlogits.numel() == 0) {
    return;
  }
  LH_CUDA(cudaMemsetAsync(op.dlogits.raw(), 0, static_cast<size_t>(op.dlogits.bytes()), stream_of(ctx)));
  launch_singly(ctx, "router_backward", op.scores.size(0),
                Backward{op.dweights.data<float>(), op.scores.data<float>(), op.weights.data<float>(), op.experts.data<int32_t>(),
                         op.dlogits.data<float>(), op.scores.size(1), static_cast<int>(op.experts.size(1)), static_cast<float>(op.scaling)});
}

}  // namespace longhaul::cuda
