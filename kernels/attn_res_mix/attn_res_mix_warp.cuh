// The mix for rows of at most kWarpHidden: a warp for a token, without barriers, so that many loads are under way at once. In
// backward a warp walks over tokens with its part of the gradient of norm_scale * query in registers.
#pragma once

#include "kernels/attn_res_mix/attn_res_mix_cuda.h"
#include "kernels/gpu/launch.cuh"

namespace longhaul::cuda::attn_res_mix {

inline constexpr int kMaxSources = static_cast<int>(kMaxMixSources);

template <class T>
struct Sources {
  const T* values[kMaxSources];  // each [tokens, hidden]
  int count;
  const T *norm_scale, *query;  // [hidden]
  int64_t tokens, hidden;
  float eps;
};

struct Gradients {
  float* dvalues[kMaxSources];  // each [tokens, hidden], accumulated
  float* partials;              // [blocks, hidden]
  int64_t share;                // tokens of a block
};

inline constexpr int kSteps = 4;                                  // of a warp over a row
inline constexpr int kStep = 32 * gpu::kWidth;                    // elements
inline constexpr int64_t kWarpHidden = int64_t{kSteps} * kStep;

// Of one token and source: probability, 1 / rms, score and <dy, v>; equal in all lanes.
struct Weight {
  float p, inv_rms, score, dy_v;
};

template <int N, class T>
__device__ void weigh(const Sources<T>& in, int64_t token, const T* dy, int lane, Weight (&weights)[N]) {
  float sums[N][3] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int64_t c = step * kStep + lane * gpu::kWidth;
    if (c >= in.hidden) {
      break;
    }
    float a[gpu::kWidth], query[gpu::kWidth], up[gpu::kWidth] = {}, value[gpu::kWidth];
    gpu::load<gpu::kWidth>(in.norm_scale + c, a);
    gpu::load<gpu::kWidth>(in.query + c, query);
    if (dy != nullptr) {
      gpu::load<gpu::kWidth>(dy + c, up);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < in.count) {
        gpu::load<gpu::kWidth>(in.values[i] + token * in.hidden + c, value);
#pragma unroll
        for (int j = 0; j < gpu::kWidth; ++j) {
          sums[i][0] += value[j] * value[j];
          sums[i][1] += a[j] * query[j] * value[j];
          sums[i][2] += up[j] * value[j];
        }
      }
    }
  }
  float largest = -INFINITY, total = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < in.count) {
      const float squares = gpu::warp_sum(sums[i][0]);
      weights[i].inv_rms = 1.0f / sqrtf(squares / static_cast<float>(in.hidden) + in.eps);
      weights[i].score = weights[i].inv_rms * gpu::warp_sum(sums[i][1]);
      weights[i].dy_v = dy != nullptr ? gpu::warp_sum(sums[i][2]) : 0.0f;
      largest = fmaxf(largest, weights[i].score);
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < in.count) {
      weights[i].p = expf(weights[i].score - largest);
      total += weights[i].p;
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < in.count) {
      weights[i].p /= total;
    }
  }
}

template <int N, class T>
__global__ void __launch_bounds__(gpu::kThreads) forward_warp_kernel(const __grid_constant__ Sources<T> in, T* y) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t token = (int64_t{blockIdx.x} * gpu::kThreads + threadIdx.x) / 32;
  if (token >= in.tokens) {
    return;
  }
  Weight weights[N];
  weigh<N>(in, token, static_cast<const T*>(nullptr), lane, weights);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int64_t c = step * kStep + lane * gpu::kWidth;
    if (c >= in.hidden) {
      break;
    }
    float sum[gpu::kWidth] = {}, v[gpu::kWidth];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < in.count) {
        gpu::load<gpu::kWidth>(in.values[i] + token * in.hidden + c, v);
#pragma unroll
        for (int j = 0; j < gpu::kWidth; ++j) {
          sum[j] += weights[i].p * v[j];
        }
      }
    }
    gpu::store<gpu::kWidth>(y + token * in.hidden + c, sum);
  }
}

// The gradients of backward_kernel in attn_res_mix_cuda.cu, where they are derived.
template <int N, class T>
__global__ void __launch_bounds__(gpu::kThreads, 2)
    backward_warp_kernel(const __grid_constant__ Sources<T> in, const __grid_constant__ Gradients out, const T* dy) {
  extern __shared__ float shared[];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float da[kSteps][gpu::kWidth] = {};
  const int64_t begin = int64_t{blockIdx.x} * out.share, end = min(begin + out.share, in.tokens);
  for (int64_t token = begin + warp; token < end; token += gpu::kThreads / 32) {
    const T* up = dy + token * in.hidden;
    Weight weights[N];
    weigh<N>(in, token, up, lane, weights);
    float dy_y = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      dy_y += i < in.count ? weights[i].p * weights[i].dy_v : 0.0f;
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int64_t c = step * kStep + lane * gpu::kWidth;
      if (c >= in.hidden) {
        break;
      }
      float u[gpu::kWidth], a[gpu::kWidth], query[gpu::kWidth], v[gpu::kWidth], dv[gpu::kWidth];
      gpu::load<gpu::kWidth>(up + c, u);
      gpu::load<gpu::kWidth>(in.norm_scale + c, a);
      gpu::load<gpu::kWidth>(in.query + c, query);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (i < in.count) {
          const Weight& w = weights[i];
          const float slope = w.p * (w.dy_v - dy_y) * w.inv_rms;
          const float shrink = w.score * w.inv_rms / static_cast<float>(in.hidden);
          float* dvalue = out.dvalues[i] + token * in.hidden + c;
          gpu::load<gpu::kWidth>(in.values[i] + token * in.hidden + c, v);
          gpu::load<gpu::kWidth>(dvalue, dv);
#pragma unroll
          for (int j = 0; j < gpu::kWidth; ++j) {
            dv[j] += w.p * u[j] + slope * (a[j] * query[j] - shrink * v[j]);
            da[step][j] += slope * v[j];
          }
          gpu::store<gpu::kWidth>(dvalue, dv);
        }
      }
    }
  }
  const gpu::ColumnSums<gpu::kWidth, 32> sums{shared, in.hidden};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int64_t c = step * kStep + lane * gpu::kWidth;
    if (c < in.hidden) {
#pragma unroll
      for (int j = 0; j < gpu::kWidth; ++j) {
        sums.at(c, j) = da[step][j];
      }
    }
  }
  sums.write(out.partials + blockIdx.x * in.hidden);
}

// Calls fn(std::integral_constant<int, N>) with N >= count; few, because each is a kernel of its own.
template <class Fn>
void with_most_sources(int count, Fn&& fn) {
  if (count <= 3) {
    fn(std::integral_constant<int, 3>{});
  } else if (count <= 6) {
    fn(std::integral_constant<int, 6>{});
  } else if (count <= 10) {
    fn(std::integral_constant<int, 10>{});
  } else {
    fn(std::integral_constant<int, kMaxSources>{});
  }
}

template <class T>
void forward_by_warps(cudaStream_t stream, const Sources<T>& in, T* y) {
  with_most_sources(in.count, [&](auto n) {
    forward_warp_kernel<n(), T><<<static_cast<unsigned>(gpu::ceil_div(in.tokens * 32, gpu::kThreads)), gpu::kThreads, 0, stream>>>(in, y);
  });
}

template <class T>
void backward_by_warps(cudaStream_t stream, unsigned blocks, const Sources<T>& in, const Gradients& out, const T* dy) {
  with_most_sources(in.count, [&](auto n) {
    const int64_t bytes = gpu::ColumnSums<gpu::kWidth, 32>::shared_bytes(in.hidden);
    gpu::allow_shared(backward_warp_kernel<n(), T>, bytes);
    backward_warp_kernel<n(), T><<<blocks, gpu::kThreads, static_cast<size_t>(bytes), stream>>>(in, out, dy);
  });
}

}  // namespace longhaul::cuda::attn_res_mix
