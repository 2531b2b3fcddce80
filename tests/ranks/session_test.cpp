// The session of MPI and the watchdog's report on real ranks.
#include <catch2/matchers/catch_matchers_string.hpp>
#include <future>

#include "comm/device_comm.h"
#include "comm/mpi_session.h"
#include "comm/watchdog.h"
#include "tensor/tensor.h"
#include "tests/support/rank_checks.h"

using namespace longhaul;
using namespace longhaul::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("the session notes what the control plane does", "[comm][np2]") {
  rank_world().barrier();
  const CommJournal::Entry last = rank_journal().entries().back();
  CHECK(last.op == "barrier");
  CHECK(last.group == "world/host");
  CHECK(last.finished);
  CHECK_FALSE(mpi_version().empty());
}

TEST_CASE("a rank that waits in a collective is reported with that collective", "[comm][np2]") {
  using namespace std::chrono_literals;
  HostComm& world = rank_world();
  CommJournal journal;
  const auto comm = world.make_cpu_device_comm({.name = "expert", .journal = &journal});
  const Tensor values = Tensor::zeros(DType::F32, {8});
  if (world.rank() == 0) {
    // Rank 1 comes only after this rank's watchdog has spoken, which it does from another thread while this one waits.
    std::string report;
    const auto tell_rank_1 = [&](const std::string& text) {
      report = text;
      const std::byte go{1};
      world.send_bytes({&go, 1}, 1, 0);
    };
    {
      Watchdog watchdog({.limit = 50ms, .grace = 60s, .rank = 0, .host_name = "here"}, journal,
                        {.report = tell_rank_1, .end_job = [] {}});
      watchdog.beat("forward");
      comm->all_reduce_max(values);
    }
    CHECK_THAT(report, ContainsSubstring("all_reduce_max expert#1 32 bytes (running)"));
    CHECK_THAT(report, ContainsSubstring("phase 'forward'"));
  } else {
    std::byte go{0};
    world.recv_bytes({&go, 1}, 0, 0);
    comm->all_reduce_max(values);
  }
  CHECK_ALL_RANKS(world, journal.entries().back().finished);
}
