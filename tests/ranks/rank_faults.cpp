// A program that fails on purpose, run under mpirun by rank_faults_test.sh, which looks at its exit code and output:
//
//   rank_faults alone     rank 1 throws, the others wait for it
//   rank_faults agreed    rank 1 throws, and all agree
//   rank_faults hang      rank 1 never comes to a collective
#include <chrono>
#include <cstdio>
#include <string_view>
#include <thread>

#include "comm/agreement.h"
#include "comm/device_comm.h"
#include "comm/mpi_session.h"
#include "comm/watchdog.h"
#include "tensor/tensor.h"

using namespace longhaul;
using namespace std::chrono_literals;

namespace {

void fail_on_rank_1(const HostComm& world) {
  if (world.rank() == 1) {
    throw DataError("shard 3 is cut off");
  }
}

void run(MpiSession& mpi, std::string_view fault) {
  HostComm& world = mpi.world();
  if (fault == "alone") {
    fail_on_rank_1(world);
    world.barrier();
  } else if (fault == "agreed") {
    run_agreed(world, [&] { fail_on_rank_1(world); });
  } else if (fault == "hang") {
    const auto expert = world.make_cpu_device_comm({.name = "expert", .journal = &mpi.journal()});
    Watchdog watchdog({.limit = 300ms, .grace = 3s, .rank = world.rank(), .host_name = mpi.host_name()}, mpi.journal(),
                      {.report = Watchdog::report_to_stderr, .end_job = [&] { mpi.abort(kWatchdogExitCode); }});
    watchdog.beat(world.rank() == 1 ? "load data" : "dispatch");
    if (world.rank() == 1) {
      std::this_thread::sleep_for(60s);
    }
    expert->all_reduce_sum(Tensor::zeros(DType::F32, {4}));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    MpiSession mpi(Env::process());
    std::printf("started\n");
    try {
      run(mpi, argc > 1 ? argv[1] : "");
    } catch (...) {
      return mpi.fail(std::current_exception());
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
  return 0;
}
