// A thread walks over a run of tokens for one channel, with the last W inputs in registers; a document's start empties them.
// Widths below W are filled up with taps of zero in front.
#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/math.cuh"
#include "kernels/gpu/partial_sums.h"
#include "kernels/short_conv/short_conv_cuda.h"

namespace longhaul::cuda {
namespace {

using namespace gpu;

constexpr int64_t kForwardTokens = 32;  // of a thread

// Where documents begin, walked through in token order.
class Documents {
 public:
  __device__ Documents(const int64_t* bounds, int64_t documents, int64_t token) : bounds_(bounds), documents_(documents) {
    int64_t low = 0, high = documents;  // the last bound at or before `token`
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      if (bounds[middle] <= token) {
        low = middle;
      } else {
        high = middle;
      }
    }
    document_ = low;
  }
  __device__ int64_t start() const { return bounds_[document_]; }
  __device__ int64_t end() const { return bounds_[document_ + 1]; }
  // Goes on to the document of `token`; true when it is another one.
  __device__ bool advance(int64_t token) {
    bool moved = false;
    while (document_ + 1 < documents_ && bounds_[document_ + 1] <= token) {
      ++document_;
      moved = true;
    }
    return moved;
  }

 private:
  const int64_t* bounds_;
  int64_t documents_;
  int64_t document_;
};

template <class T>
struct Inputs {
  const T* x;           // [tokens, channels]
  const float* weight;  // [channels, width]
  const int64_t* bounds;
  int64_t documents, tokens, channels;
  int width;
};

template <int W, class T>
__device__ void load_taps(const Inputs<T>& in, int64_t channel, float (&taps)[W]) {
#pragma unroll
  for (int j = 0; j < W; ++j) {
    const int at = j - (W - in.width);
    taps[j] = at >= 0 ? in.weight[channel * in.width + at] : 0.0f;
  }
}

// The W - 1 inputs before `token` in window[1 ..], as shift expects them; zero before the document's start.
template <int W, class T>
__device__ void load_window(const Inputs<T>& in, int64_t channel, int64_t token, int64_t start, float (&window)[W]) {
  window[0] = 0;
#pragma unroll
  for (int j = 1; j < W; ++j) {
    const int64_t t = token - W + j;
    window[j] = t >= start ? to_float(in.x[t * in.channels + channel]) : 0.0f;
  }
}

template <int W>
__device__ void shift(float (&window)[W], float newest) {
#pragma unroll
  for (int j = 0; j + 1 < W; ++j) {
    window[j] = window[j + 1];
  }
  window[W - 1] = newest;
}

template <int W>
__device__ void clear(float (&window)[W]) {
#pragma unroll
  for (int j = 0; j < W; ++j) {
    window[j] = 0;
  }
}

template <int W>
__device__ float convolve(const float (&taps)[W], const float (&window)[W]) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < W; ++j) {
    sum += taps[j] * window[j];
  }
  return sum;
}

template <int W, class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(Inputs<T> in, T* y) {
  const int64_t channel = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (channel >= in.channels) {
    return;
  }
  const int64_t begin = int64_t{blockIdx.x} * kForwardTokens, end = min(begin + kForwardTokens, in.tokens);
  float taps[W], window[W];
  Documents documents(in.bounds, in.documents, begin);
  load_taps<W>(in, channel, taps);
  load_window<W>(in, channel, begin, documents.start(), window);
  for (int64_t t = begin; t < end; ++t) {
    if (documents.advance(t)) {
      clear<W>(window);
    }
    shift<W>(window, to_float(in.x[t * in.channels + channel]));
    y[t * in.channels + channel] = from_float<T>(silu(convolve<W>(taps, window)));
  }
}

// dsum[t] = dy[t] silu'(sum[t]);  dx[t] = sum over k of taps[W - 1 - k] dsum[t + k] within the document;
// dtaps[j] = sum over t of dsum[t] x[t - (W - 1) + j]. The thread computes dsum W - 1 tokens ahead of dx.
template <int W, class T, class D>
struct Backward {
  Inputs<T> in;
  const D* dy;
  T* dx;
  float* partials;  // [blocks, channels * width]
  int64_t share;

  __device__ void run(int64_t channel, int64_t begin, int64_t end, float (&dtaps)[W]) const {
    float taps[W], window[W], dsums[W] = {};  // dsums[k]: of token t + k
    Documents here(in.bounds, in.documents, begin), ahead = here;
    load_taps<W>(in, channel, taps);
    load_window<W>(in, channel, begin, here.start(), window);
    const auto next_dsum = [&](int64_t t) {
      if (t >= in.tokens) {
        return 0.0f;
      }
      if (ahead.advance(t)) {
        clear<W>(window);
      }
      shift<W>(window, to_float(in.x[t * in.channels + channel]));
      const float dsum = to_float(dy[t * in.channels + channel]) * silu_and_derivative(convolve<W>(taps, window)).derivative;
      if (t < end) {
#pragma unroll
        for (int j = 0; j < W; ++j) {
          dtaps[j] += dsum * window[j];
        }
      }
      return dsum;
    };
    for (int k = 0; k + 1 < W; ++k) {
      shift<W>(dsums, next_dsum(begin + k));
    }
    for (int64_t t = begin; t < end; ++t) {
      shift<W>(dsums, next_dsum(t + W - 1));
      here.advance(t);
      float sum = 0;
#pragma unroll
      for (int k = 0; k < W; ++k) {
        sum += t + k < here.end() ? taps[W - 1 - k] * dsums[k] : 0.0f;
      }
      dx[t * in.channels + channel] = from_float<T>(sum);
    }
  }
};

template <int W, class T, class D>
__global__ void __launch_bounds__(kThreads) backward_kernel(Backward<W, T, D> p) {
  const int64_t channel = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (channel >= p.in.channels) {
    return;
  }
  const int64_t begin = int64_t{blockIdx.x} * p.share, end = min(begin + p.share, p.in.tokens);
  float dtaps[W] = {};
  if (begin < end) {
    p.run(channel, begin, end, dtaps);
  }
  float* out = p.partials + (int64_t{blockIdx.x} * p.in.channels + channel) * p.in.width;
#pragma unroll
  for (int j = 0; j < W; ++j) {
    const int at = j - (W - p.in.width);
    if (at >= 0) {
      out[at] = dtaps[j];
    }
  }
}

template <class T>
Inputs<T> inputs_of(const TensorView& x, const TensorView& weight, const TensorView& cu_seqlens) {
  return {typed<T>(x), weight.data<float>(), cu_seqlens.data<int64_t>(), cu_seqlens.size(0) - 1, x.size(0), x.size(1), static_cast<int>(weight.size(1))};
}

// Calls fn(std::integral_constant<int, W>) with the number of taps to keep.
template <class Fn>
void with_width(int64_t width, Fn&& fn) {
  if (width <= 4) {
    fn(std::integral_constant<int, 4>{});
  } else {
    fn(std::integral_constant<int, kMaxConvWidth>{});
  }
}

}  // namespace

void short_conv_forward(ExecContext& ctx, const ShortConvForward& op) {
  if (op.x.numel() == 0) {
    return;
  }
  dispatch_compute(op.x.dtype(), "short_conv_forward", [&](auto zero) {
    using T = decltype(zero);
    const dim3 grid(static_cast<unsigned>(ceil_div(op.x.size(0), kForwardTokens)), static_cast<unsigned>(ceil_div(op.x.size(1), kThreads)));
    with_width(op.weight.size(1), [&](auto w) {
      forward_kernel<w(), T><<<grid, kThreads, 0, stream_of(ctx)>>>(inputs_of<T>(op.x, op.weight, op.cu_seqlens), typed<T>(op.y));
    });
  });
  LH_CHECK_LAUNCH(ctx, "short_conv_forward");
}

void short_conv_backward(ExecContext& ctx, const ShortConvBackward& op, const TensorView& partials) {
  const int64_t tokens = op.x.size(0), channels = op.x.size(1), blocks = partials.size(0);
  if (channels == 0) {
    return;
  }
  dispatch_compute(op.x.dtype(), op.dy.dtype(), "short_conv_backward", [&](auto zero, auto dy_zero) {
    using T = decltype(zero);
    using D = decltype(dy_zero);
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(ceil_div(channels, kThreads)));
    with_width(op.weight.size(1), [&](auto w) {
      backward_kernel<w(), T, D><<<grid, kThreads, 0, stream_of(ctx)>>>({inputs_of<T>(op.x, op.weight, op.cu_seqlens), typed<D>(op.dy), typed<T>(op.dx),
                                                                         partials.data<float>(), ceil_div(tokens, blocks)});
    });
  });
  LH_CHECK_LAUNCH(ctx, "short_conv_backward");
  add_partial_sums(ctx, partials, op.dweight);
}

}  // namespace longhaul::cuda
