// Integer arithmetic that refuses silent damage: range-checked casts, exact division, rounding up.
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include "base/error.h"

namespace longhaul {

// Converts between integer types; throws InternalError when the value does not fit.
template <std::integral To, std::integral From>
[[nodiscard]] constexpr To narrow(From value) {
  if (!std::in_range<To>(value)) {
    throw InternalError("the value {} does not fit into an integer of {} bytes", value, sizeof(To));
  }
  return static_cast<To>(value);
}

// numerator / denominator, which must divide.
[[nodiscard]] constexpr int64_t div_exact(int64_t numerator, int64_t denominator) {
  if (denominator == 0 || numerator % denominator != 0) {
    throw InternalError("{} does not divide by {}", numerator, denominator);
  }
  return numerator / denominator;
}

[[nodiscard]] constexpr int64_t ceil_div(int64_t numerator, int64_t denominator) {
  return (numerator + denominator - 1) / denominator;
}

[[nodiscard]] constexpr int64_t round_up(int64_t value, int64_t multiple) { return ceil_div(value, multiple) * multiple; }

}  // namespace longhaul
