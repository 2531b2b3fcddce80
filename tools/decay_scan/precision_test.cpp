// Rounding to 16 bits against known values, and against every half there is.
#include "tools/decay_scan/precision.h"

#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "storage/half.h"

namespace longhaul::decay {
namespace {

TEST_CASE("fp16 rounds to nearest even, overflows at 65520 and keeps subnormals", "[tools]") {
  CHECK(round_to_fp16(1.0f + 0x1p-11f) == 1.0f);               // a tie, to even
  CHECK(round_to_fp16(1.0f + 0x1.8p-10f) == 1.0f + 0x1p-9f);   // a tie, up to even
  CHECK(round_to_fp16(1.0f + 0x1.01p-11f) == 1.0f + 0x1p-10f);
  CHECK(round_to_fp16(0.1f) == 0x1.998p-4f);
  CHECK(round_to_fp16(65519.996f) == 65504.0f);
  CHECK(std::isinf(round_to_fp16(65520.0f)));
  CHECK(round_to_fp16(-1e30f) == -std::numeric_limits<float>::infinity());
  CHECK(round_to_fp16(0x1p-24f) == 0x1p-24f);                  // the smallest
  CHECK(round_to_fp16(0x1p-25f) == 0.0f);                      // a tie, to zero
  CHECK(round_to_fp16(0x1.02p-25f) == 0x1p-24f);
  CHECK(round_to_fp16(0x1.ff8p-15f) == 0x1.ff8p-15f);          // the largest subnormal
  CHECK(round_to_fp16(0x1.ffcp-15f) == 0x1p-14f);              // a tie, to the smallest normal
  CHECK(std::isnan(round_to_fp16(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("every finite half is its own rounding, and what lies between two goes to the even one", "[tools]") {
  for (uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = half_to_float(bits), high = half_to_float(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    REQUIRE(round_to_fp16(low) == low);
    REQUIRE(round_to_fp16(middle) == (bits % 2 == 0 ? low : high));
    REQUIRE(round_to_fp16(std::nextafter(middle, 0.0f)) == low);
    REQUIRE(round_to_fp16(-std::nextafter(middle, 1e6f)) == -high);
  }
}

TEST_CASE("bf16 rounds to nearest even and flushes subnormals", "[tools]") {
  CHECK(round_to_bf16(1.0f + 0x1p-8f) == 1.0f);
  CHECK(round_to_bf16(1.0f + 0x1.8p-7f) == 1.0f + 0x1p-6f);
  CHECK(round_to_bf16(3.14159274f) == 3.140625f);
  CHECK(round_to_bf16(3.38e38f) == 0x1.fcp127f);
  CHECK(std::isinf(round_to_bf16(0x1.ffp127f)));
  CHECK(round_to_bf16(0x1p-126f) == 0x1p-126f);
  CHECK(round_to_bf16(0x1.8p-127f) == 0.0f);
}

TEST_CASE("without limits of range, significands round alike and nothing overflows", "[tools]") {
  for (const Precision p : {Precision::Bf16, Precision::Fp16}) {
    for (int i = 0; i < 4096; ++i) {
      const float x = 1.0f + 0x1p-12f * static_cast<float>(i);
      REQUIRE(round_to(p, static_cast<double>(x)) == static_cast<double>(round_to(p, x)));
      REQUIRE(round_to(p, -static_cast<double>(x)) == static_cast<double>(round_to(p, -x)));
    }
    CHECK(round_to(p, 0x1p500) == 0x1p500);
    CHECK(round_to(p, 0x1p-500) == 0x1p-500);
    CHECK(round_to(p, 0.0) == 0.0);
    CHECK(overflow_of(p) > largest_of(p));
  }
}

}  // namespace
}  // namespace longhaul::decay
