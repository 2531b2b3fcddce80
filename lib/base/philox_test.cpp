// Philox against the known answers published with Random123 (kat_vectors, philox4x32 10 rounds), and the derived draws.
#include "base/philox.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

using namespace longhaul;

TEST_CASE("philox4x32-10 known answers", "[base]") {
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Philox4{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  CHECK(philox4x32({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu}) ==
        Philox4{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
  CHECK(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}) ==
        Philox4{0xd16cfe09u, 0x94fdcceb, 0x5001e420u, 0x24126ea1u});
}

TEST_CASE("draws have the right moments and bounds", "[base]") {
  const RandomStream stream{.seed = 1234, .stream = stream_id("test")};
  double sum = 0, square = 0, mean_uniform = 0;
  const int n = 20000;
  for (int i = 0; i < n; ++i) {
    const double x = stream.normal(static_cast<uint64_t>(i));
    sum += x;
    square += x * x;
    mean_uniform += stream.uniform(static_cast<uint64_t>(i));
    CHECK(stream.below(static_cast<uint64_t>(i), 7) < 7);
  }
  CHECK(std::abs(sum / n) < 0.03);
  CHECK(std::abs(square / n - 1) < 0.05);
  CHECK(std::abs(mean_uniform / n - 0.5) < 0.01);
}

TEST_CASE("normal draws are those of the library's functions", "[base]") {
  for (uint64_t i = 0; i < 20000; ++i) {
    const Philox4 w = RandomStream{.seed = 7, .stream = 11}.words(i);
    const double u = (w[0] + 0.5) * 0x1p-32, v = (w[1] + 0.5) * 0x1p-32;
    REQUIRE(std::abs(portable_log(u) - std::log(u)) <= 4e-16 * std::abs(std::log(u)));
    REQUIRE(std::abs(portable_cos_turns(v) - std::cos(6.283185307179586 * v)) <= 1e-15);
  }
  CHECK(portable_log(1.0) == 0);
  CHECK(std::abs(portable_log(0x1p-33) - std::log(0x1p-33)) <= 4e-15);
  CHECK(portable_cos_turns(0) == 1);
  CHECK(portable_cos_turns(0.5) == -1);
}
