// log and cosine in double from additions, multiplications and divisions alone. IEEE arithmetic defines each of these to
// the last bit, so that initial weights are the same on every processor and GPU; libraries differ in the last bit. The
// build must not fuse multiplications with additions (-ffp-contract=off, -fmad=false). Within 2 units in the last place.
#pragma once

#include <bit>
#include <cstdint>

#include "base/host_device.h"

namespace longhaul {

// The natural logarithm of a positive normal number.
[[nodiscard]] LH_HOST_DEVICE inline double portable_log(double x) noexcept {
  const auto bits = std::bit_cast<uint64_t>(x);
  auto exponent = static_cast<int32_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);  // in [1, 2)
  if (m > 1.4142135623730951) {
    m *= 0.5;
    exponent += 1;
  }
  // log m = 2 (s + s^3 / 3 + s^5 / 5 + …) with |s| < 0.172.
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double series = 1.0 / 21;
  for (int odd = 19; odd >= 3; odd -= 2) {
    series = series * z + 1.0 / odd;
  }
  const double twice = s + s;
  // ln 2 in two parts; the product with the first is exact.
  return exponent * 0x1.62e42feep-1 + (twice + (twice * (series * z) + exponent * 0x1.a39ef35793c76p-33));
}

// cos(2 pi turns) for turns in [0, 1].
[[nodiscard]] LH_HOST_DEVICE inline double portable_cos_turns(double turns) noexcept {
  const double quarters = turns * 4.0;
  const auto nearest = static_cast<int32_t>(quarters + 0.5);
  const double angle = (quarters - nearest) * 1.5707963267948966;  // |angle| <= pi / 4
  const double z = angle * angle;
  double cosine = 1.0, sine = 1.0;  // Taylor, from the last term: 1 - z / (n (n - 1)) (…)
  for (int n = 16; n >= 2; n -= 2) {
    cosine = 1.0 - z / (n * (n - 1)) * cosine;
    sine = 1.0 - z / (n * (n + 1)) * sine;
  }
  sine *= angle;
  switch (nearest & 3) {
    case 0: return cosine;
    case 1: return -sine;
    case 2: return -cosine;
    default: return sine;
  }
}

}  // namespace longhaul
