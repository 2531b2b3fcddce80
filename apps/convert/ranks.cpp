// See with_ranks in command.h. MPI is started only under a launcher, so that a plain `convert` needs none.
#include "apps/convert/command.h"
#include "comm/mpi_session.h"
#include "comm/self_host_comm.h"

namespace longhaul::convert_app {

namespace {

// Variables of Open MPI, of MPICH and its relatives, and of Slurm's own launcher.
bool is_launched(const Env& env) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (env.get_int(name).value_or(1) > 1) {
      return true;
    }
  }
  return false;
}

}  // namespace

int with_ranks(const std::function<int(HostComm&)>& work) {
  const Env env = Env::process();
  if (!is_launched(env)) {
    SelfHostComm alone;
    return work(alone);
  }
  MpiSession mpi(env);
  try {
    return work(mpi.world());
  } catch (...) {
    return mpi.fail(std::current_exception());
  }
}

}  // namespace longhaul::convert_app
