// MXFP4 (OCP Microscaling Formats 1.0) as Kimi K3's routed experts are stored: groups of 32 values along the input
// dimension, each value a 4-bit float E2M1 (0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign), two to a byte with the even element in
// the low nibble, and one power of two per group in a byte, 2^(scale - 127).
//
// Encoding takes the smallest scale with which the largest magnitude does not pass 6, 2^ceil(log2(amax / 6)), and rounds
// to nearest, ties to even. Decoded values encode to themselves: a second round trip changes nothing.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace longhaul::mxfp4 {

inline constexpr int64_t kGroup = 32;           // values
inline constexpr int64_t kGroupBytes = kGroup / 2;
inline constexpr uint8_t kUnitScale = 127;      // 2^0; also written for a group of zeros
inline constexpr uint8_t kNanScale = 255;

struct EncodedGroup {
  std::array<uint8_t, kGroupBytes> packed{};
  uint8_t scale = kUnitScale;
};

// Throws ConversionError when a value is not finite.
[[nodiscard]] EncodedGroup encode(std::span<const float, kGroup> values);

// The value of a code (low four bits) without its scale.
[[nodiscard]] float code_value(uint8_t code) noexcept;
// 2^(scale - 127), exact. Throws ConversionError for 255, which stands for "not a number".
[[nodiscard]] float scale_value(uint8_t scale);

}  // namespace longhaul::mxfp4
