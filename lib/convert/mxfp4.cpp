// See mxfp4.h.
#include "convert/mxfp4.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace longhaul::mxfp4 {

namespace {

constexpr std::array<float, 8> kMagnitudes{0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
constexpr int kLargestExponent = 127;   // of a scale
constexpr int kSmallestExponent = -127;

// The smallest k with amax <= 6 * 2^k, without the rounding of a logarithm.
int exponent_for(float amax) {
  int exponent = 0;
  const float fraction = std::frexp(amax, &exponent);  // amax = fraction * 2^exponent, 0.5 <= fraction < 1; 6 = 0.75 * 2^3
  return std::clamp(fraction <= 0.75f ? exponent - 3 : exponent - 2, kSmallestExponent, kLargestExponent);
}

// Nearest code to a magnitude in units of the scale; halfway goes to the even code.
uint8_t magnitude_code(double x) {
  if (x <= 0.25) return 0;
  if (x < 0.75) return 1;
  if (x <= 1.25) return 2;
  if (x < 1.75) return 3;
  if (x <= 2.5) return 4;
  if (x < 3.5) return 5;
  return x <= 5.0 ? 6 : 7;
}

}  // namespace

EncodedGroup encode(std::span<const float, kGroup> values) {
  float amax = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) {
      throw ConversionError("{} cannot be written in MXFP4; the weights are not finite", value);
    }
    amax = std::max(amax, std::abs(value));
  }
  EncodedGroup group;
  const int exponent = amax == 0 ? 0 : exponent_for(amax);
  group.scale = static_cast<uint8_t>(exponent + kUnitScale);
  for (size_t i = 0; i < values.size(); ++i) {
    const double scaled = std::ldexp(std::abs(static_cast<double>(values[i])), -exponent);
    const auto code = static_cast<uint8_t>(magnitude_code(scaled) | (std::signbit(values[i]) ? 8 : 0));
    group.packed[i / 2] = static_cast<uint8_t>(group.packed[i / 2] | (i % 2 == 0 ? code : code << 4));
  }
  return group;
}

float code_value(uint8_t code) noexcept {
  const float magnitude = kMagnitudes[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

float scale_value(uint8_t scale) {
  if (scale == kNanScale) {
    throw ConversionError("an MXFP4 scale is 255, which stands for \"not a number\"");
  }
  return std::ldexp(1.0f, scale - kUnitScale);
}

}  // namespace longhaul::mxfp4
