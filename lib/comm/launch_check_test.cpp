// Ranks that do not know of each other are recognised (https://github.com/open-mpi/ompi/issues/13523).
#include "comm/launch_check.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "base/error.h"

using namespace longhaul;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("one rank under a launcher of several is refused", "[comm]") {
  for (const char* variable : {"SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "PMI_SIZE"}) {
    const Env env({{variable, "4"}, {"SLURM_PROCID", "2"}});
    CHECK_THROWS_MATCHES(check_launch(env, 1), RecipeError,
                         MessageMatches(ContainsSubstring("srun --mpi=pmix") && ContainsSubstring("mpirun -n 4") &&
                                        ContainsSubstring(std::string(variable) + "=4")));
    CHECK_NOTHROW(check_launch(env, 4));
  }
}

TEST_CASE("another MPI's mpirun is refused", "[comm]") {
  const Env env({{"OMPI_COMM_WORLD_SIZE", "4"}});
  CHECK_THROWS_MATCHES(check_launch(env, 1), RecipeError, MessageMatches(ContainsSubstring("OMPI_COMM_WORLD_SIZE")));
  CHECK_NOTHROW(check_launch(env, 4));
}

TEST_CASE("ordinary starts are accepted", "[comm]") {
  CHECK_NOTHROW(check_launch(Env(), 1));
  CHECK_NOTHROW(check_launch(Env({{"SLURM_NTASKS", "1"}}), 1));
  CHECK_NOTHROW(check_launch(Env({{"SLURM_NTASKS", "4(x2)"}}), 1));
  // mpirun -n 1 inside a larger allocation, on purpose.
  CHECK_NOTHROW(check_launch(Env({{"SLURM_NTASKS", "8"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), 1));
}
