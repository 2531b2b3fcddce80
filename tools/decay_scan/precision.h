// The two 16-bit types of tensor-core operands, emulated: float values rounded to what the type can hold.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include "tensor/dtype.h"

namespace longhaul::decay {

enum class Precision : uint8_t { Bf16, Fp16 };
constexpr auto enum_names(Precision) {
  return std::array<std::pair<Precision, std::string_view>, 2>{{{Precision::Bf16, "bf16"}, {Precision::Fp16, "fp16"}}};
}

[[nodiscard]] constexpr double largest_of(Precision p) { return p == Precision::Bf16 ? 0x1.fep127 : 65504.0; }
[[nodiscard]] constexpr double smallest_normal_of(Precision p) { return p == Precision::Bf16 ? 0x1p-126 : 0x1p-14; }
// Magnitudes from here on round to infinity: half a unit in the last place above the largest.
[[nodiscard]] constexpr double overflow_of(Precision p) { return p == Precision::Bf16 ? 0x1.ffp127 : 65520.0; }

// Nearest, ties to even; 65520 and more become infinite; subnormals are kept, as tensor cores keep them.
[[nodiscard]] inline float round_to_fp16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return x;
  }
  if (magnitude >= 0x477ff000u) {  // 65520
    return std::copysign(std::numeric_limits<float>::infinity(), x);
  }
  if (magnitude < 0x38800000u) {  // 2^-14: multiples of 2^-24
    return std::nearbyint(x * 0x1p24f) * 0x1p-24f;
  }
  return std::bit_cast<float>((bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu);
}

// Nearest, ties to even. Subnormals become zero: they are subnormal floats too, and the float arithmetic that makes operands
// flushes these, in the kernels on both backends.
[[nodiscard]] inline float round_to_bf16(float x) {
  return std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : static_cast<float>(BFloat16(x));
}

// What a type of the same significand (8 or 11 bits) would hold if its exponents had no end: nearest, ties to even.
[[nodiscard]] inline double round_significand(Precision p, double x) {
  const int dropped = p == Precision::Bf16 ? 53 - 8 : 53 - 11;
  const uint64_t unit = uint64_t{1} << dropped;
  const auto bits = std::bit_cast<uint64_t>(x);
  return std::isfinite(x) ? std::bit_cast<double>((bits + unit / 2 - 1 + ((bits >> dropped) & 1)) & ~(unit - 1)) : x;
}

[[nodiscard]] inline float round_to(Precision p, float x) { return p == Precision::Bf16 ? round_to_bf16(x) : round_to_fp16(x); }
// In double: the significand alone.
[[nodiscard]] inline double round_to(Precision p, double x) { return round_significand(p, x); }

}  // namespace longhaul::decay
