// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011). A value is a pure function of (seed, stream, index), so any rank layout, recomputation or resume draws
// the same numbers and there is no generator state to save.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "base/portable_math.h"

namespace longhaul {

using Philox4 = std::array<uint32_t, 4>;

[[nodiscard]] constexpr Philox4 philox4x32(Philox4 counter, std::array<uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// One stream of random numbers. `stream` names the purpose (a parameter's name hash, a layer and step, an epoch);
// streams of one seed are independent.
struct RandomStream {
  uint64_t seed = 0;
  uint64_t stream = 0;

  // Four 32-bit words for `index`.
  [[nodiscard]] constexpr Philox4 words(uint64_t index) const noexcept {
    return philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(stream),
                       static_cast<uint32_t>(stream >> 32)},
                      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  }

  // Uniform on (0, 1): the middle of one of 2^24 cells, exact in float.
  [[nodiscard]] constexpr float uniform(uint64_t index) const noexcept {
    return (static_cast<float>(words(index)[0] >> 8) + 0.5f) * 0x1p-24f;
  }

  // Standard normal by Box-Muller in double from two 32-bit words; the same bits on every platform.
  [[nodiscard]] LH_HOST_DEVICE double normal(uint64_t index) const noexcept {
    const Philox4 w = words(index);
    const double u = (w[0] + 0.5) * 0x1p-32;
    const double v = (w[1] + 0.5) * 0x1p-32;
    return std::sqrt(-2.0 * portable_log(u)) * portable_cos_turns(v);
  }

  // Uniform integer in [0, bound) by multiply-shift of 64 random bits; bias below bound / 2^64.
  [[nodiscard]] constexpr uint64_t below(uint64_t index, uint64_t bound) const noexcept {
    const Philox4 w = words(index);
    const uint64_t bits = (uint64_t{w[0]} << 32) | w[1];
    return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
  }
};

// FNV-1a, for naming streams after strings ("init/model.layers.0.mlp.gate_proj.weight").
[[nodiscard]] constexpr uint64_t stream_id(const char* text, uint64_t hash = 0xcbf29ce484222325ull) noexcept {
  for (; *text != '\0'; ++text) {
    hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3ull;
  }
  return hash;
}

}  // namespace longhaul
