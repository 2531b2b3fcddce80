// Errors carry their exit code, the place of the throw and the contexts added on the way up.
#include "base/error.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "base/cast.h"

using namespace longhaul;

TEST_CASE("an error keeps kind, message, place and contexts", "[base]") {
  try {
    try {
      throw RecipeError("stages.{}.steps: must be positive, got {}", 1, -3);
    } catch (Error& error) {
      error.add_context("stage 64k");
      error.add_context("recipe");
      throw;
    }
  } catch (const Error& error) {
    CHECK(error.exit_code() == 2);
    CHECK(std::string(error.what()) == "stages.1.steps: must be positive, got -3 (in recipe / stage 64k)");
    CHECK(std::string(error.where().file_name()).find("error_test.cpp") != std::string::npos);
  }
}

TEST_CASE("LH_CHECK throws with the expression", "[base]") {
  const int n = 3;
  CHECK_NOTHROW([&] { LH_CHECK(n == 3, "n is {}", n); }());
  try {
    LH_CHECK(n == 4, "n is {}", n);
    FAIL("must throw");
  } catch (const InternalError& error) {
    CHECK(std::string(error.what()).find("n == 4: n is 3") != std::string::npos);
  }
}

TEST_CASE("checked integer arithmetic", "[base]") {
  CHECK(narrow<int32_t>(int64_t{7}) == 7);
  CHECK_THROWS_AS(narrow<int32_t>(int64_t{1} << 40), InternalError);
  CHECK_THROWS_AS(narrow<uint8_t>(-1), InternalError);
  CHECK(div_exact(12, 4) == 3);
  CHECK_THROWS_AS(div_exact(13, 4), InternalError);
  CHECK_THROWS_AS(div_exact(13, 0), InternalError);
  CHECK(ceil_div(13, 4) == 4);
  CHECK(round_up(13, 4) == 16);
}
