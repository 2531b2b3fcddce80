// Plain loops over every element type. bf16 occurs here although the CPU computes in f32 and f64, because weights are
// read and written in it.
#include "kernels/elementwise/elementwise_cpu.h"

#include <algorithm>
#include <cstring>

#include "kernels/math/lane_sum.h"

namespace longhaul::cpu {
namespace {

// Calls fn with a value of the C++ type for any float dtype.
template <class Fn>
void dispatch_any_float(DType dtype, std::string_view op, Fn&& fn) {
  if (dtype == DType::BF16) {
    fn(BFloat16{});
    return;
  }
  dispatch_float(dtype, op, fn);
}

template <class Fn>
void dispatch_any(DType dtype, std::string_view op, Fn&& fn) {
  switch (dtype) {
    case DType::I64: fn(int64_t{}); return;
    case DType::I32: fn(int32_t{}); return;
    case DType::U8: fn(uint8_t{}); return;
    default: dispatch_any_float(dtype, op, fn); return;
  }
}

// The type in which arithmetic on T happens: bf16 widens to float.
template <class T>
struct ArithmeticType {
  using Type = T;
};
template <>
struct ArithmeticType<BFloat16> {
  using Type = float;
};
template <class T>
using Arithmetic = typename ArithmeticType<T>::Type;

template <class To, class From>
[[gnu::always_inline]] inline To convert(From value) {
  return static_cast<To>(static_cast<Arithmetic<To>>(static_cast<Arithmetic<From>>(value)));
}

// Calls fn(source row, destination row, elements) for each pair of rows of two views of the same shape.
template <class Fn>
void for_each_row(const TensorView& source, const TensorView& destination, Fn&& fn) {
  if (source.rank() <= 1) {
    fn(source, destination, source.rank() == 0 ? 1 : source.size(0));
    return;
  }
  for (int64_t i = 0; i < source.size(0); ++i) {
    for_each_row(source[i], destination[i], fn);
  }
}

}  // namespace

void fill(const TensorView& x, double value) {
  dispatch_any(x.dtype(), "fill", [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(x.data<T>(), x.numel(), convert<T>(value));
  });
}

void copy(const TensorView& source, const TensorView& destination) {
  if (source.numel() == 0) {
    return;
  }
  if (source.is_contiguous() && destination.is_contiguous() && source.rank() != 1) {
    copy(source.reshape({source.numel()}), destination.reshape({source.numel()}));
    return;
  }
  if (source.dtype() == destination.dtype()) {
    for_each_row(source, destination, [](const TensorView& from, const TensorView& to, int64_t n) {
      std::memmove(to.raw(), from.raw(), static_cast<size_t>(n * size_of(from.dtype())));
    });
    return;
  }
  dispatch_any_float(source.dtype(), "copy", [&](auto from_zero) {
    dispatch_any_float(destination.dtype(), "copy", [&](auto to_zero) {
      using From = decltype(from_zero);
      using To = decltype(to_zero);
      for_each_row(source, destination, [](const TensorView& from, const TensorView& to, int64_t n) {
        const From* s = from.data<From>();
        To* d = to.data<To>();
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) {
          d[i] = convert<To>(s[i]);
        }
      });
    });
  });
}

void add(const TensorView& x, const TensorView& y) {
  dispatch_any_float(x.dtype(), "add", [&](auto x_zero) {
    dispatch_any_float(y.dtype(), "add", [&](auto y_zero) {
      using X = decltype(x_zero);
      using Y = decltype(y_zero);
      const X* from = x.data<X>();
      Y* to = y.data<Y>();
      const int64_t n = x.numel();
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        to[i] = static_cast<Y>(static_cast<Arithmetic<Y>>(to[i]) + convert<Arithmetic<Y>>(from[i]));
      }
    });
  });
}

void scale(const TensorView& x, double factor) {
  dispatch_any_float(x.dtype(), "scale", [&](auto zero) {
    using T = decltype(zero);
    T* values = x.data<T>();
    const auto f = static_cast<Arithmetic<T>>(factor);
    const int64_t n = x.numel();
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      values[i] = static_cast<T>(static_cast<Arithmetic<T>>(values[i]) * f);
    }
  });
}

void add_sum_of_squares(const TensorView& x, const TensorView& sum_of_squares) {
  constexpr int64_t kBlock = 1024;
  double total = 0;
  dispatch_any_float(x.dtype(), "add_sum_of_squares", [&](auto zero) {
    using T = decltype(zero);
    const T* values = x.data<T>();
    for (int64_t begin = 0; begin < x.numel(); begin += kBlock) {
      total += math::lane_sum(std::min(kBlock, x.numel() - begin), [&](int64_t i) {
        const auto value = convert<double>(values[begin + i]);
        return value * value;
      });
    }
  });
  *sum_of_squares.data<double>() += total;
}

void fill_normal(const TensorView& x, RandomStream stream, double mean, double stddev, int64_t first_index) {
  dispatch_any_float(x.dtype(), "fill_normal", [&](auto zero) {
    using T = decltype(zero);
    T* values = x.data<T>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      values[i] = convert<T>(mean + stddev * stream.normal(static_cast<uint64_t>(first_index + i)));
    }
  });
}

}  // namespace longhaul::cpu
