// One pass over the elements each. Doubles occur as well as the compute types: sums of losses and of squares are kept in
// them. Sums of squares are in double, each block over its own range, then over blocks in order.
#include "kernels/elementwise/elementwise_cuda.h"
#include "kernels/gpu/launch.cuh"

namespace longhaul::cuda {
namespace {

using namespace gpu;

// The type in which arithmetic on T happens.
template <class T>
using Arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class A, class T>
__device__ A widen(T x) {
  if constexpr (std::is_same_v<T, BF16>) {
    return static_cast<A>(__bfloat162float(x));
  } else {
    return static_cast<A>(x);
  }
}
template <class T, class A>
__device__ T round_to(A x) {
  if constexpr (std::is_same_v<T, BF16>) {
    return __float2bfloat16_rn(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

// Calls fn with a value of the type for any float dtype.
template <class Fn>
void dispatch_any_float(DType dtype, const char* op, Fn&& fn) {
  if (dtype == DType::F64) {
    fn(double{});
    return;
  }
  dispatch_compute(dtype, op, fn);
}

// Elements of a view of any type by their size, for moving bits.
template <class Fn>
void dispatch_size(DType dtype, Fn&& fn) {
  switch (size_of(dtype)) {
    case 8: fn(uint64_t{}); return;
    case 4: fn(uint32_t{}); return;
    case 2: fn(uint16_t{}); return;
    default: fn(uint8_t{}); return;
  }
}

template <class Bits>
struct Fill {
  Bits* x;
  Bits bits;
  template <int W>
  __device__ void apply(int64_t i) const {
#pragma unroll
    for (int j = 0; j < W; ++j) {
      x[i + j] = bits;
    }
  }
};

// Up to four dimensions, the innermost with stride 1.
struct Strided {
  int64_t sizes[4];    // outer to inner, 1 where there are fewer
  int64_t strides[4];  // in elements

  explicit Strided(const TensorView& view) : sizes{1, 1, 1, 1}, strides{0, 0, 0, 1} {
    const int shift = 4 - view.rank();
    for (int dim = 0; dim < view.rank(); ++dim) {
      sizes[shift + dim] = view.size(dim);
      strides[shift + dim] = dim + 1 == view.rank() ? 1 : view.stride(dim);
    }
  }
  __device__ int64_t at(int64_t i) const {
    int64_t offset = 0;
#pragma unroll
    for (int dim = 3; dim >= 0; --dim) {
      offset += i % sizes[dim] * strides[dim];
      i /= sizes[dim];
    }
    return offset;
  }
};

template <class From, class To>
struct CopyRows {
  const From* from;
  To* to;
  Strided source, destination;
  template <int W>
  __device__ void apply(int64_t i) const {
    to[destination.at(i)] = round_to<To>(widen<Arithmetic<To>>(from[source.at(i)]));
  }
};
template <class Bits>
struct MoveRows {
  const Bits* from;
  Bits* to;
  Strided source, destination;
  template <int W>
  __device__ void apply(int64_t i) const {
    to[destination.at(i)] = from[source.at(i)];
  }
};

template <class X, class Y>
struct Convert {
  const X* x;
  Y* y;
  bool adds;
  template <int W>
  __device__ void apply(int64_t i) const {
    if constexpr (std::is_same_v<X, double> || std::is_same_v<Y, double>) {
#pragma unroll
      for (int j = 0; j < W; ++j) {
        const auto value = widen<Arithmetic<Y>>(x[i + j]);
        y[i + j] = round_to<Y>(adds ? widen<Arithmetic<Y>>(y[i + j]) + value : value);
      }
    } else {
      float value[W], sum[W];
      load<W>(x + i, value);
      if (adds) {
        load<W>(y + i, sum);
#pragma unroll
        for (int j = 0; j < W; ++j) {
          value[j] += sum[j];
        }
      }
      store<W>(y + i, value);
    }
  }
};

template <class T>
struct Scale {
  T* x;
  Arithmetic<T> factor;
  template <int W>
  __device__ void apply(int64_t i) const {
#pragma unroll
    for (int j = 0; j < W; ++j) {
      x[i + j] = round_to<T>(widen<Arithmetic<T>>(x[i + j]) * factor);
    }
  }
};

// y = x or y += x over contiguous views.
void convert(ExecContext& ctx, const char* op, const TensorView& x, const TensorView& y, bool adds) {
  dispatch_any_float(x.dtype(), op, [&](auto x_zero) {
    dispatch_any_float(y.dtype(), op, [&](auto y_zero) {
      using X = decltype(x_zero);
      using Y = decltype(y_zero);
      launch_each(ctx, op, x.numel(), is_aligned({x.raw(), y.raw()}), Convert<X, Y>{typed<X>(x), typed<Y>(y), adds});
    });
  });
}

__device__ double block_sum(double value) {
  __shared__ double sums[kThreads];
  sums[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) {
      sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
  }
  return sums[0];
}

template <class T>
__global__ void __launch_bounds__(kThreads) square_kernel(const T* x, int64_t n, int64_t share, double* partials) {
  const int64_t begin = int64_t{blockIdx.x} * share, end = min(begin + share, n);
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const auto value = widen<double>(x[i]);
    sum += value * value;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = sum;
  }
}

__global__ void __launch_bounds__(kThreads) add_up_kernel(const double* partials, int64_t n, double* total) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) {
    sum += partials[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    *total += sum;
  }
}

}  // namespace

void fill(ExecContext& ctx, const TensorView& x, double value) {
  if (value == 0 && x.numel() > 0) {
    LH_CUDA(cudaMemsetAsync(x.raw(), 0, static_cast<size_t>(x.bytes()), stream_of(ctx)));
    return;
  }
  const auto launch = [&](auto bits) {
    using Bits = decltype(bits);
    launch_each(ctx, "fill", x.numel(), is_aligned({x.raw()}), Fill<Bits>{static_cast<Bits*>(x.raw()), bits});
  };
  switch (x.dtype()) {
    case DType::F64: launch(std::bit_cast<uint64_t>(value)); return;
    case DType::F32: launch(std::bit_cast<uint32_t>(static_cast<float>(value))); return;
    case DType::BF16: launch(BFloat16(static_cast<float>(value)).bits); return;
    case DType::I64: launch(static_cast<uint64_t>(static_cast<int64_t>(value))); return;
    case DType::I32: launch(static_cast<uint32_t>(static_cast<int32_t>(value))); return;
    case DType::U8: launch(static_cast<uint8_t>(value)); return;
  }
}

void copy(ExecContext& ctx, const TensorView& source, const TensorView& destination) {
  const bool same_type = source.dtype() == destination.dtype();
  if (source.is_contiguous() && destination.is_contiguous()) {
    if (!same_type) {
      convert(ctx, "copy", source, destination, false);
    } else if (source.numel() > 0) {
      LH_CUDA(cudaMemcpyAsync(destination.raw(), source.raw(), static_cast<size_t>(source.bytes()), cudaMemcpyDeviceToDevice, stream_of(ctx)));
    }
    return;
  }
  if (same_type) {
    dispatch_size(source.dtype(), [&](auto bits) {
      using Bits = decltype(bits);
      launch_singly(ctx, "copy", source.numel(),
                  MoveRows<Bits>{static_cast<const Bits*>(source.raw()), static_cast<Bits*>(destination.raw()), Strided(source), Strided(destination)});
    });
    return;
  }
  dispatch_any_float(source.dtype(), "copy", [&](auto from_zero) {
    dispatch_any_float(destination.dtype(), "copy", [&](auto to_zero) {
      using From = decltype(from_zero);
      using To = decltype(to_zero);
      launch_singly(ctx, "copy", source.numel(),
                  CopyRows<From, To>{typed<From>(source), typed<To>(destination), Strided(source), Strided(destination)});
    });
  });
}

void add(ExecContext& ctx, const TensorView& x, const TensorView& y) { convert(ctx, "add", x, y, true); }

void scale(ExecContext& ctx, const TensorView& x, double factor) {
  dispatch_any_float(x.dtype(), "scale", [&](auto zero) {
    using T = decltype(zero);
    launch_each(ctx, "scale", x.numel(), is_aligned({x.raw()}), Scale<T>{typed<T>(x), static_cast<Arithmetic<T>>(factor)});
  });
}

void add_sum_of_squares(ExecContext& ctx, const TensorView& x, const TensorView& sum_of_squares, const TensorView& partials) {
  const int64_t blocks = partials.numel();
  dispatch_any_float(x.dtype(), "add_sum_of_squares", [&](auto zero) {
    using T = decltype(zero);
    square_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(ctx)>>>(typed<T>(x), x.numel(), ceil_div(x.numel(), blocks),
                                                                                 partials.data<double>());
  });
  LH_CHECK_LAUNCH(ctx, "add_sum_of_squares");
  add_up_kernel<<<1, kThreads, 0, stream_of(ctx)>>>(partials.data<double>(), blocks, sum_of_squares.data<double>());
  LH_CHECK_LAUNCH(ctx, "add_sum_of_squares");
}

}  // namespace longhaul::cuda
