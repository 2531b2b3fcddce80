#include "convert/mxfp4.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/philox.h"

namespace longhaul {
namespace {

std::array<float, 32> decode(const mxfp4::EncodedGroup& group) {
  std::array<float, 32> values{};
  for (size_t i = 0; i < 32; ++i) {
    const uint8_t byte = group.packed[i / 2];
    values[i] = mxfp4::code_value(static_cast<uint8_t>(i % 2 == 0 ? byte & 15 : byte >> 4)) * mxfp4::scale_value(group.scale);
  }
  return values;
}

// A group whose first value fixes the scale at one: 6.
mxfp4::EncodedGroup encode_beside_six(float value) {
  std::array<float, 32> values{};
  values[0] = 6.0f;
  values[1] = value;
  return mxfp4::encode(values);
}

uint8_t code_beside_six(float value) { return encode_beside_six(value).packed[0] >> 4; }

}  // namespace

TEST_CASE("MXFP4 codes are sign and magnitude, the even element in the low nibble", "[convert]") {
  std::array<float, 32> values{0.5f, -6.0f, 1.0f, 1.5f, -0.0f, 4.0f, 3.0f, -2.0f};
  const mxfp4::EncodedGroup group = mxfp4::encode(values);
  CHECK(group.scale == 127);
  CHECK(group.packed[0] == 0xf1);  // 0.5 is code 1, -6 is code 15
  CHECK(group.packed[1] == 0x32);
  CHECK(group.packed[2] == 0x68);  // -0 keeps its sign
  CHECK(group.packed[3] == 0xc5);
  CHECK(decode(group) == values);
}

TEST_CASE("MXFP4 rounds to nearest, halfway to the even code", "[convert]") {
  CHECK(code_beside_six(0.25f) == 0);
  CHECK(code_beside_six(0.26f) == 1);
  CHECK(code_beside_six(0.75f) == 2);
  CHECK(code_beside_six(1.25f) == 2);
  CHECK(code_beside_six(1.26f) == 3);
  CHECK(code_beside_six(1.75f) == 4);
  CHECK(code_beside_six(2.5f) == 4);
  CHECK(code_beside_six(2.51f) == 5);
  CHECK(code_beside_six(3.5f) == 6);
  CHECK(code_beside_six(5.0f) == 6);
  CHECK(code_beside_six(5.01f) == 7);
  CHECK(code_beside_six(-5.01f) == 15);
}

TEST_CASE("the MXFP4 scale is 2^ceil(log2(amax / 6))", "[convert]") {
  const auto scale_of = [](float amax) {
    std::array<float, 32> values{};
    values[17] = -amax;
    return int{mxfp4::encode(values).scale};
  };
  CHECK(scale_of(6.0f) == 127);
  CHECK(scale_of(std::nextafter(6.0f, 7.0f)) == 128);
  CHECK(scale_of(3.0f) == 126);
  CHECK(scale_of(12.0f) == 128);
  CHECK(scale_of(0.02f) == 127 + static_cast<int>(std::ceil(std::log2(0.02 / 6))));
  CHECK(scale_of(0.0f) == 127);
  CHECK(scale_of(std::numeric_limits<float>::max()) == 127 + 126);
  CHECK(scale_of(std::numeric_limits<float>::denorm_min()) == 0);  // no scale is smaller
}

TEST_CASE("decoded MXFP4 encodes to the same values, and again to the same codes", "[convert]") {
  const RandomStream random{.seed = 3, .stream = 1};
  for (uint64_t trial = 0; trial < 2000; ++trial) {
    std::array<float, 32> values{};
    const float size = std::ldexp(1.0f, static_cast<int>(trial % 200) - 100);
    for (size_t i = 0; i < 32; ++i) {
      values[i] = size * static_cast<float>(random.normal(trial * 32 + i));
    }
    const auto once = decode(mxfp4::encode(values));
    const mxfp4::EncodedGroup second = mxfp4::encode(once);
    REQUIRE(decode(second) == once);
    const mxfp4::EncodedGroup third = mxfp4::encode(decode(second));
    REQUIRE(third.packed == second.packed);
    REQUIRE(third.scale == second.scale);
    for (size_t i = 0; i < 32; ++i) {  // at most half a step of 2 in units of the scale
      REQUIRE(std::abs(once[i] - values[i]) <= mxfp4::scale_value(mxfp4::encode(values).scale));
    }
  }
}

TEST_CASE("MXFP4 refuses what it cannot hold", "[convert]") {
  std::array<float, 32> values{};
  values[5] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_AS(mxfp4::encode(values), ConversionError);
  values[5] = -std::numeric_limits<float>::infinity();
  CHECK_THROWS_AS(mxfp4::encode(values), ConversionError);
  CHECK_THROWS_AS(mxfp4::scale_value(255), ConversionError);
  CHECK(mxfp4::scale_value(0) == std::ldexp(1.0f, -127));
}

}  // namespace longhaul
