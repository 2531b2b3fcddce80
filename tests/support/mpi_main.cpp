// The main of test programs that run under mpirun. Rank 0 reports as usual; every other rank prints failures only, each
// with its rank; the exit code is the largest over the ranks. A watchdog ends a test that hangs and shows where each
// rank was.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#include <cstdio>
#include <vector>

#include "comm/mpi_session.h"
#include "comm/watchdog.h"
#include "tests/support/rank_checks.h"

namespace longhaul::testing {

namespace {

// Catch2 makes its listeners itself, so what they use must be found from here. Alive while main's session is.
struct Running {
  MpiSession& mpi;
  Watchdog& watchdog;
};
Running* running = nullptr;

// Below the limit that CTest sets for a rank test, so that the report is seen.
constexpr auto kHangLimit = std::chrono::seconds(120);

class RankListener final : public Catch::EventListenerBase {
 public:
  using Catch::EventListenerBase::EventListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    name_ = info.name;
    running->watchdog.beat(name_);
  }
  void assertionEnded(const Catch::AssertionStats& stats) override {
    const Catch::AssertionResult& result = stats.assertionResult;
    if (running->mpi.world().rank() == 0 || result.isOk()) {
      return;
    }
    std::string text = fmt::format("[rank {}] {}: {}:{}: failed: {}", running->mpi.world().rank(), name_,
                                   result.getSourceInfo().file, result.getSourceInfo().line,
                                   result.hasExpression() ? result.getExpressionInMacro() : std::string("an unexpected event"));
    if (result.hasExpandedExpression()) {
      text += fmt::format(" with {}", result.getExpandedExpression());
    }
    for (const Catch::MessageInfo& message : stats.infoMessages) {
      text += "\n  " + message.message;
    }
    if (result.hasMessage()) {
      text += fmt::format("\n  {}", std::string(result.getMessage()));
    }
    Watchdog::report_to_stderr(text + "\n");
  }

 private:
  std::string name_;
};
CATCH_REGISTER_LISTENER(RankListener)

int run_session(MpiSession& mpi, int argc, char** argv) {
  Watchdog watchdog({.limit = kHangLimit, .rank = mpi.world().rank(), .host_name = mpi.host_name()}, mpi.journal(),
                    {.report = Watchdog::report_to_stderr, .end_job = [&] { mpi.abort(kWatchdogExitCode); }});
  Running here{mpi, watchdog};
  running = &here;
  Catch::Session session;
  std::vector<const char*> arguments(argv, argv + argc);
  if (mpi.world().rank() != 0) {
    arguments.insert(arguments.end(), {"--out", "/dev/null"});
  }
  int result = session.applyCommandLine(static_cast<int>(arguments.size()), arguments.data());
  if (result == 0) {
    result = session.run();
  }
  running = nullptr;
  const std::vector<int> results = mpi.world().all_gather_value(result);
  return *std::max_element(results.begin(), results.end());
}

}  // namespace

MpiHostComm& rank_world() { return running->mpi.world(); }
CommJournal& rank_journal() { return running->mpi.journal(); }

std::string ranks_that_failed(HostComm& comm, bool here) {
  const std::vector<char> results = comm.all_gather_value(static_cast<char>(here));
  std::string ranks;
  for (size_t r = 0; r < results.size(); ++r) {
    if (results[r] == 0) {
      ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", r);
    }
  }
  return ranks.empty() ? ranks : fmt::format("false on ranks {} of {}", ranks, comm.name());
}

}  // namespace longhaul::testing

int main(int argc, char** argv) {
  try {
    longhaul::MpiSession mpi(longhaul::Env::process());
    try {
      return longhaul::testing::run_session(mpi, argc, argv);
    } catch (...) {
      return mpi.fail(std::current_exception());
    }
  } catch (const longhaul::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
