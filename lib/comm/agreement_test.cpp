// One rank's failure becomes the same error on all.
#include "comm/agreement.h"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <mutex>
#include <set>

#include "comm/self_host_comm.h"
#include "comm/thread_host_comm.h"

using namespace longhaul;

namespace {

struct Outcome {
  int exit_code = 0;
  std::string message;
  int failing_rank = -1;
  bool is_reported_here = false;
};

// What each of four ranks throws when the ranks in `failures` fail with that exception.
std::vector<Outcome> outcomes(const std::map<int, std::exception_ptr>& failures) {
  std::vector<Outcome> found(4);
  run_ranks(4, [&](HostComm& host, int rank) {
    const auto mine = failures.find(rank);
    try {
      rethrow_if_any(host, mine == failures.end() ? nullptr : mine->second);
    } catch (const Error& error) {
      const AgreedFailure* agreed = agreed_failure(error);
      LH_CHECK(agreed != nullptr, "the error must say that all ranks have it");
      found[static_cast<size_t>(rank)] = {error.exit_code(), error.what(), agreed->failing_rank(), agreed->is_reported_here()};
    }
  });
  return found;
}

}  // namespace

TEST_CASE("all ranks throw the error of the lowest rank that failed", "[comm]") {
  const std::exception_ptr data = std::make_exception_ptr(DataError("shard {} is cut off", 7));
  const std::exception_ptr recipe = std::make_exception_ptr(RecipeError("no such key"));
  for (const auto& [failures, wanted_rank] : {std::pair(std::map<int, std::exception_ptr>{{0, data}}, 0),
                                              std::pair(std::map<int, std::exception_ptr>{{2, data}}, 2),
                                              std::pair(std::map<int, std::exception_ptr>{{1, data}, {2, recipe}, {3, recipe}}, 1)}) {
    const std::vector<Outcome> found = outcomes(failures);
    for (int rank = 0; rank < 4; ++rank) {
      INFO("rank " << rank << ", the lowest failure is on rank " << wanted_rank);
      const Outcome& outcome = found[static_cast<size_t>(rank)];
      CHECK(outcome.exit_code == 6);
      CHECK(outcome.message == fmt::format("[rank {}] shard 7 is cut off", wanted_rank));
      CHECK(outcome.failing_rank == wanted_rank);
      CHECK(outcome.is_reported_here == (rank == wanted_rank));
    }
  }
}

TEST_CASE("without a failure nothing is thrown", "[comm]") {
  for (const Outcome& outcome : outcomes({})) {
    CHECK(outcome.exit_code == 0);
  }
}

TEST_CASE("every kind of error keeps its type, and foreign exceptions get one", "[comm]") {
  SelfHostComm host;
  CHECK_THROWS_AS(rethrow_if_any(host, std::make_exception_ptr(CheckpointError("x"))), CheckpointError);
  CHECK_THROWS_AS(rethrow_if_any(host, std::make_exception_ptr(ShapeError("x"))), InternalError);
  CHECK_THROWS_AS(rethrow_if_any(host, std::make_exception_ptr(std::bad_alloc())), OutOfMemoryError);
  CHECK_THROWS_AS(rethrow_if_any(host, std::make_exception_ptr(std::runtime_error("x"))), InternalError);
  CHECK_THROWS_AS(rethrow_if_any(host, std::make_exception_ptr(42)), InternalError);
  for (const ErrorKind kind : {ErrorKind::Internal, ErrorKind::Recipe, ErrorKind::Device, ErrorKind::Comm, ErrorKind::Checkpoint,
                               ErrorKind::Data, ErrorKind::Conversion, ErrorKind::OutOfMemory, ErrorKind::Divergence}) {
    try {
      throw_error(kind, "{braces} stay");
      FAIL("must throw");
    } catch (const Error& error) {
      CHECK(error.kind() == kind);
      CHECK(std::string(error.what()) == "{braces} stay");
      CHECK(agreed_failure(error) == nullptr);
    }
  }
}

TEST_CASE("an error that a group agreed about keeps its rank when the world agrees again", "[comm]") {
  std::mutex mutex;
  std::multiset<std::string> messages;
  run_ranks(4, [&](HostComm& host, int rank) {
    const auto half = host.split(rank / 2, rank, "half");
    try {
      run_agreed(host, [&] { run_agreed(*half, [&] { LH_CHECK(rank != 3, "three"); }); });
    } catch (const InternalError& error) {
      const std::lock_guard lock(mutex);
      messages.insert(std::string(error.what()).substr(0, 24));
    }
  });
  CHECK(messages.size() == 4);
  CHECK(messages.count("[rank 1] check failed: r") == 4);  // rank 3 of the world is rank 1 of its half
}

TEST_CASE("run_agreed returns what the function returns", "[comm]") {
  SelfHostComm host;
  CHECK(run_agreed(host, [] { return std::string("value"); }) == "value");
}
