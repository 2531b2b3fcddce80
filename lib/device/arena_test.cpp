// Arenas: measuring equals taking, scopes free, a fixed arena refuses more than its capacity by name.
#include "device/arena.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>

#include "base/error.h"
#include "device/blas.h"

using namespace longhaul;

namespace {
void take_like_a_step(Arena& arena) {
  (void)arena.take_bytes("activations", 1000);
  for (int i = 0; i < 3; ++i) {
    const ArenaScope scope(arena);
    (void)arena.take_bytes("temporary", 5000 * (i + 1));
  }
  (void)arena.take_bytes("gradients", 300);
}
}  // namespace

TEST_CASE("a measured plan is exactly enough", "[device]") {
  Arena measured = Arena::measuring(Device{}, "scratch");
  take_like_a_step(measured);
  CHECK(measured.used_bytes() == 1024 + 512);
  CHECK(measured.high_water_bytes() == 1024 + 15104);
  REQUIRE(measured.entries().size() == 3);
  CHECK(measured.entries()[1].name == "temporary");

  Arena exact(Device{}, "scratch", measured.high_water_bytes());
  CHECK_NOTHROW(take_like_a_step(exact));
  CHECK(exact.high_water_bytes() == measured.high_water_bytes());

  Arena small(Device{}, "scratch", measured.high_water_bytes() - 256);
  try {
    take_like_a_step(small);
    FAIL("must throw");
  } catch (const OutOfMemoryError& error) {
    CHECK(std::string(error.what()).find("temporary") != std::string::npos);
    CHECK(error.exit_code() == 8);
  }
}

TEST_CASE("a chunked arena grows and reuses its chunks", "[device]") {
  Arena arena(Device{}, "ragged", 256, Arena::Growth::Chunked);
  const auto mark = arena.mark();
  std::byte* first = arena.take_bytes("a", 100);
  std::byte* second = arena.take_bytes("b", 3 << 20);
  CHECK(first != nullptr);
  CHECK(second != nullptr);
  const int64_t capacity = arena.capacity_bytes();
  arena.release(mark);
  CHECK(arena.used_bytes() == 0);
  CHECK(arena.take_bytes("a", 100) == first);
  CHECK(arena.take_bytes("b", 3 << 20) == second);
  CHECK(arena.capacity_bytes() == capacity);
}

TEST_CASE("gemm is row-major and does not read C when beta is zero", "[device]") {
  const double a[6] = {1, 2, 3, 4, 5, 6};     // [2,3]
  const double b[6] = {1, 0, 2, 1, 0, 1};     // [3,2]
  double c[4] = {NAN, NAN, NAN, NAN};
  blas::gemm(blas::Transpose::No, blas::Transpose::No, 2, 2, 3, 1.0, a, 3, b, 2, 0.0, c, 2);
  CHECK(c[0] == 5);
  CHECK(c[1] == 5);
  CHECK(c[2] == 14);
  CHECK(c[3] == 11);
}
