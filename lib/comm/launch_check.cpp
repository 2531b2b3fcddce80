// See launch_check.h.
#include "comm/launch_check.h"

#include "base/error.h"

namespace longhaul {

void check_launch(const Env& env, int mpi_size) {
  const auto ompi_size = env.get_int("OMPI_COMM_WORLD_SIZE");
  if (ompi_size.has_value()) {
    if (*ompi_size != mpi_size) {
      throw RecipeError(
          "launch: MPI sees {} rank(s), but OMPI_COMM_WORLD_SIZE says that mpirun started {}; the mpirun in PATH and the MPI that "
          "this program was built with are different ones. Use the mpirun of the MPI that --version prints",
          mpi_size, *ompi_size);
    }
    return;
  }
  if (mpi_size != 1) {
    return;
  }
  for (const char* variable : {"PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
    const auto tasks = env.get_int(variable);
    if (tasks.value_or(1) > 1) {
      throw RecipeError(
          "launch: MPI sees 1 rank, but {}={}: the launcher and MPI do not know of each other, and each process would train alone "
          "into the same run directory. Start with `srun --mpi=pmix` or `mpirun -n {}`; for one rank on purpose use `mpirun -n 1`",
          variable, *tasks, *tasks);
    }
  }
}

int64_t launched_rank(const Env& env) {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const auto rank = env.get_int(variable)) {
      return *rank;
    }
  }
  return 0;
}

}  // namespace longhaul
