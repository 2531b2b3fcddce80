// exp and tanh for float as straight-line code that the compiler turns into vector instructions: calls into libm cannot
// be vectorised without giving up exact rules for NaN and infinity, and these functions dominate the elementwise
// operations. Accuracy is within 1.5 (exp) and 2 (tanh) units in the last place (fast_math_test.cpp); NaN, infinities,
// underflow through denormals and overflow behave as in libm. The double versions are libm's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace longhaul::math {

// All bits set where the condition holds.
[[nodiscard, gnu::always_inline]] inline uint32_t mask_where(bool condition) noexcept {
  return 0u - static_cast<uint32_t>(condition);
}

// condition ? a : b, with both computed. Bit operations for float, because the compiler would turn the choice into a branch
// around the computation of a or b, and a loop with branches is not vectorised.
[[nodiscard, gnu::always_inline]] inline float blend(bool condition, float a, float b) noexcept {
  const uint32_t mask = mask_where(condition);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(a) & mask) | (std::bit_cast<uint32_t>(b) & ~mask));
}
[[nodiscard]] inline double blend(bool condition, double a, double b) noexcept { return condition ? a : b; }

// 2^n for n in [-126, 127].
[[nodiscard, gnu::always_inline]] inline float power_of_two(uint32_t n) noexcept {
  return std::bit_cast<float>((n + 127u) << 23);
}

[[nodiscard, gnu::always_inline]] inline float exp(float x) noexcept {
  // Beyond these the result is 0 or infinity, and the computation goes on with 0. Comparisons with NaN are false, so NaN
  // passes through.
  const uint32_t below = mask_where(x < -104.0f);
  const uint32_t above = mask_where(x > 89.0f);
  const float c = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & ~(below | above));
  // Adding 1.5 * 2^23 rounds to the nearest integer n and leaves it in the low bits.
  constexpr float kRound = 12582912.0f;
  const float shifted = c * 1.44269504f + kRound;
  const float n = shifted - kRound;
  // c - n ln 2 in two steps; the first product is exact because 355/512 has few bits.
  float r = c - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  // exp(r) = 1 + r + r^2 p(r), p fitted for the least relative error on |r| <= ln(2) / 2 (3e-9 before rounding).
  float p = 0.0013814467f;
  p = p * r + 0.0083687808f;
  p = p * r + 0.0416683927f;
  p = p * r + 0.1666651964f;
  p = p * r + 0.4999999404f;
  const float y = (p * (r * r) + r) + 1.0f;
  // 2^n in two factors, so that results below the normal range and at the top of it round once.
  const auto exponent = static_cast<int32_t>(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound));
  const int32_t half = exponent >> 1;
  const float result = y * power_of_two(static_cast<uint32_t>(half)) *
                       power_of_two(static_cast<uint32_t>(exponent) - static_cast<uint32_t>(half));
  // exp(0) = 1 has its exponent bits inside those of infinity.
  constexpr uint32_t kInfinityBits = 0x7f800000u;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(result) & ~below) | (above & kInfinityBits));
}
[[nodiscard]] inline double exp(double x) noexcept { return std::exp(x); }

[[nodiscard, gnu::always_inline]] inline float tanh(float x) noexcept {
  const float a = std::abs(x);
  // Near zero x + x^3 q(x^2), fitted for the least relative error on |x| <= 0.625; elsewhere 1 - 2 / (exp(2 |x|) + 1).
  const float z = x * x;
  float q = -0.0057002348f;
  q = q * z + 0.0206350014f;
  q = q * z + -0.0537385195f;
  q = q * z + 0.1333142817f;
  q = q * z + -0.3333328068f;
  const float near = q * z * x + x;
  const float far = std::copysign(1.0f - 2.0f / (exp(a + a) + 1.0f), x);
  return blend(a > 0.625f, far, near);
}
[[nodiscard]] inline double tanh(double x) noexcept { return std::tanh(x); }

}  // namespace longhaul::math
