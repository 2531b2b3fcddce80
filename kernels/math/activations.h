// Scalar activation functions and their derivatives in forms that neither overflow nor cancel, for float and double.
// Everything goes through exp(-|x|), which is in (0, 1].
#pragma once

#include <cmath>

#include "kernels/math/fast_math.h"

namespace longhaul::math {

template <class T>
[[nodiscard, gnu::always_inline]] inline T sigmoid(T x) noexcept {
  const T e = math::exp(-std::abs(x));
  const T numerator = math::blend(x >= T{0}, T{1}, e);
  return numerator / (T{1} + e);
}

// A function's value and derivative at one point.
template <class T>
struct ValueAndDerivative {
  T value;
  T derivative;
};

// sigmoid(x) and sigmoid'(x) = e / (1 + e)^2, which keeps its relative accuracy where sigmoid(x) rounds to 1.
template <class T>
[[nodiscard, gnu::always_inline]] inline ValueAndDerivative<T> sigmoid_and_derivative(T x) noexcept {
  const T e = math::exp(-std::abs(x));
  const T inverse = T{1} / (T{1} + e);
  const T numerator = math::blend(x >= T{0}, T{1}, e);
  return {numerator * inverse, e * inverse * inverse};
}

// x sigmoid(x).
template <class T>
[[nodiscard, gnu::always_inline]] inline T silu(T x) noexcept {
  return x * math::sigmoid(x);
}

template <class T>
[[nodiscard, gnu::always_inline]] inline ValueAndDerivative<T> silu_and_derivative(T x) noexcept {
  const auto [s, ds] = math::sigmoid_and_derivative(x);
  return {x * s, s + x * ds};
}

// log(1 + exp(x)).
template <class T>
[[nodiscard]] inline T softplus(T x) noexcept {
  return (x > T{0} ? x : T{0}) + std::log1p(std::exp(-std::abs(x)));
}

}  // namespace longhaul::math
