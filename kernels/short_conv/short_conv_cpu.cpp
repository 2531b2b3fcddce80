// Token by token over rows of channels. A token's sum adds its taps from the oldest to the newest, and reads no row of
// another document.
#include "kernels/short_conv/short_conv_cpu.h"

#include <algorithm>

#include "kernels/add_gradient.h"
#include "kernels/math/activations.h"

namespace longhaul::cpu {
namespace {

// The document bounds; they must rise from 0 to `tokens`.
const int64_t* checked_bounds(std::string_view op, const TensorView& cu_seqlens, int64_t tokens) {
  const int64_t* bounds = cu_seqlens.data<int64_t>();
  const int64_t last = cu_seqlens.size(0) - 1;
  if (bounds[0] != 0 || bounds[last] != tokens || !std::is_sorted(bounds, bounds + last + 1)) {
    throw ShapeError("{}: cu_seqlens must rise from 0 to {} tokens, got {} to {}", op, tokens, bounds[0], bounds[last]);
  }
  return bounds;
}

template <class T>
void transpose_taps(const TensorView& weight, const TensorView& taps) {
  const int64_t channels = weight.size(0);
  const int64_t width = weight.size(1);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t j = 0; j < width; ++j) {
      taps.data<T>()[j * channels + c] = weight.data<T>()[c * width + j];
    }
  }
}

// out[c] = sum over the taps j >= first of taps[j, c] * x[t - (width - 1) + j, c]; `newest` is row t of x.
template <class T>
void convolve_row(const T* newest, const T* taps, int64_t first, int64_t width, int64_t channels, T* out) {
  for (int64_t j = first; j < width; ++j) {
    const T* row = newest - (width - 1 - j) * channels;
    const T* tap = taps + j * channels;
    if (j == first) {
#pragma omp simd
      for (int64_t c = 0; c < channels; ++c) {
        out[c] = tap[c] * row[c];
      }
      continue;
    }
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) {
      out[c] += tap[c] * row[c];
    }
  }
}

// Adds one token's part to the gradients; `dsum` is the gradient of the token's sum before SiLU.
template <class T>
void convolve_row_backward(const T* newest, const T* taps, const T* dsum, int64_t first, int64_t width, int64_t channels,
                           T* dnewest, double* dtaps) {
  for (int64_t j = first; j < width; ++j) {
    const int64_t back = (width - 1 - j) * channels;
    const T* row = newest - back;
    T* drow = dnewest - back;
    const T* tap = taps + j * channels;
    double* dtap = dtaps + j * channels;
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) {
      drow[c] += tap[c] * dsum[c];
      dtap[c] += static_cast<double>(dsum[c] * row[c]);
    }
  }
}

}  // namespace

void short_conv_forward(const ShortConvForward& op, const TensorView& taps) {
  const int64_t* bounds = checked_bounds("short_conv_forward", op.cu_seqlens, op.x.size(0));
  dispatch_float(op.x.dtype(), "short_conv_forward", [&](auto zero) {
    using T = decltype(zero);
    const int64_t channels = op.x.size(1);
    const int64_t width = op.weight.size(1);
    transpose_taps<T>(op.weight, taps);
    for (int64_t document = 0; document + 1 < op.cu_seqlens.size(0); ++document) {
      for (int64_t t = bounds[document]; t < bounds[document + 1]; ++t) {
        const int64_t first = std::max<int64_t>(0, width - 1 - (t - bounds[document]));
        T* y = op.y.data<T>() + t * channels;
        convolve_row(op.x.data<T>() + t * channels, taps.data<T>(), first, width, channels, y);
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) {
          y[c] = math::silu(y[c]);
        }
      }
    }
  });
}

void short_conv_backward(const ShortConvBackward& op, const ShortConvScratch& scratch) {
  const int64_t* bounds = checked_bounds("short_conv_backward", op.cu_seqlens, op.x.size(0));
  dispatch_float(op.x.dtype(), "short_conv_backward", [&](auto zero) {
    using T = decltype(zero);
    const int64_t channels = op.x.size(1);
    const int64_t width = op.weight.size(1);
    const T* taps = scratch.taps.data<T>();
    T* dsum = scratch.dsum.data<T>();
    double* dtaps = scratch.dtaps.data<double>();
    transpose_taps<T>(op.weight, scratch.taps);
    std::fill_n(dtaps, width * channels, 0.0);
    std::fill_n(op.dx.data<T>(), op.dx.numel(), T{0});
    for (int64_t document = 0; document + 1 < op.cu_seqlens.size(0); ++document) {
      for (int64_t t = bounds[document]; t < bounds[document + 1]; ++t) {
        const int64_t first = std::max<int64_t>(0, width - 1 - (t - bounds[document]));
        const T* x = op.x.data<T>() + t * channels;
        const T* dy = op.dy.data<T>() + t * channels;
        convolve_row(x, taps, first, width, channels, dsum);
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) {
          dsum[c] = dy[c] * math::silu_and_derivative(dsum[c]).derivative;
        }
        convolve_row_backward(x, taps, dsum, first, width, channels, op.dx.data<T>() + t * channels, dtaps);
      }
    }
    add_to_gradient(op.dweight, channels * width, [&](int64_t i) { return dtaps[i % width * channels + i / width]; });
  });
}

}  // namespace longhaul::cpu
