// Reading variables, and refusing half-numbers.
#include "base/env.h"

#include <catch2/catch_test_macros.hpp>

using namespace longhaul;

TEST_CASE("variables are read as text and as whole integers", "[base]") {
  const Env env({{"TASKS", "4"}, {"PER_NODE", "4(x2)"}, {"EMPTY", ""}, {"NEGATIVE", "-3"}});
  CHECK(env.get("TASKS") == "4");
  CHECK(env.get("EMPTY") == "");
  CHECK_FALSE(env.get("ABSENT").has_value());
  CHECK(env.get_int("TASKS") == 4);
  CHECK(env.get_int("NEGATIVE") == -3);
  CHECK_FALSE(env.get_int("PER_NODE").has_value());
  CHECK_FALSE(env.get_int("EMPTY").has_value());
  CHECK_FALSE(env.get_int("ABSENT").has_value());
}

TEST_CASE("the process's environment is a copy of what env_get sees", "[base]") {
  const Env env = Env::process();
  CHECK(env.get("PATH") == env_get("PATH"));
  CHECK_FALSE(env_get("LONGHAUL_NO_SUCH_VARIABLE").has_value());
}
