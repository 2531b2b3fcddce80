// Damages bytes in the ways in which files of numbers and headers are damaged, by accident or on purpose.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace longhaul {

using FuzzRandom = std::mt19937_64;

[[nodiscard]] inline int64_t draw(FuzzRandom& random, int64_t below) {
  return below <= 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint64_t>(below));
}

// One to a few changes: bits and bytes flipped, numbers at the edge of their range put in, ranges cut out, doubled, exchanged or
// overwritten, the end cut off, numbers and brackets of JSON replaced. Changes are drawn towards the first `header` bytes.
void mutate(FuzzRandom& random, std::string& bytes, int64_t header);

}  // namespace longhaul
