// Recognises a job whose ranks do not know of each other: under `srun` without PMIx, or with another MPI's mpirun, every
// process believes to be rank 0 of 1 and would train a full copy into the same run directory.
#pragma once

#include "base/env.h"

namespace longhaul {

// Throws RecipeError (exit 2) when the launcher's variables in `env` contradict MPI's world size. A world size that
// Open MPI's own launcher confirms (OMPI_COMM_WORLD_SIZE) is always right, also inside a larger Slurm allocation.
void check_launch(const Env& env, int mpi_size);

// This process's rank as the launcher counts, for what is printed without MPI; 0 when nothing launched it.
[[nodiscard]] int64_t launched_rank(const Env& env);

}  // namespace longhaul
