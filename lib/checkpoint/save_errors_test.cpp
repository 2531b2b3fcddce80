// Saves that fail: on one rank, by a disk that is full or a directory that goes away. The error is the same on all ranks, and the
// checkpoint before remains.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <cstdlib>
#include <iostream>

#include "checkpoint/checkpoint_test_support.h"
#include "checkpoint/directory_names.h"
#include "checkpoint/find.h"
#include "storage/atomic_write.h"
#include "storage/temporary_directory.h"

using namespace longhaul;
using namespace longhaul::checkpoint_test;
using Catch::Matchers::ContainsSubstring;

namespace {

// The wait status of a child process that runs `work` and then ends by exit(), with code 1 when it threw. Under the
// address sanitizer by _exit(), because HDF5 loses memory of its own in a close that fails.
int end_of_child(const std::function<void()>& work) {
  std::cout.flush();
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 0;
    try {
      work();
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
      code = 1;
    }
#ifdef __SANITIZE_ADDRESS__
    ::_exit(code);
#else
    std::exit(code);
#endif
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

void save_on(int size, const std::filesystem::path& run, const std::vector<NamedTensor>& state, int64_t step) {
  run_ranks(size, [&](HostComm& comm, int rank) { save_checkpoint(comm, run, content_of(state, step, rank, size)); });
}

}  // namespace

TEST_CASE("a failure on one rank is the same error on all and leaves the previous checkpoint", "[checkpoint]") {
  const TemporaryDirectory run;
  const std::vector<NamedTensor> state = global_state(5);
  save_on(2, run.path(), state, 10);
  for (const char* point : {"bytes", "after_rank_file"}) {
    const auto errors = errors_on_two_ranks([&](HostComm& comm, int rank) {
      SaveOptions options;
      options.fault = [&](std::string_view reached, int64_t) {
        if (rank == 1 && reached == point) {
          throw CheckpointError("the disk of rank 1 is gone");
        }
      };
      save_checkpoint(comm, run.path(), content_of(global_state(6), 20, rank, 2), options);
    });
    CHECK_THAT(errors[0], ContainsSubstring("[rank 1]") && ContainsSubstring("the disk of rank 1 is gone"));
    CHECK(errors[0] == errors[1]);
    CHECK(names_in(checkpoints_directory(run.path())) == std::vector<std::string>{"latest", "step_00000010"});
  }
  CHECK(same_state(load_state(run.path() / "checkpoints/step_00000010"), state));
}

TEST_CASE("a directory that vanishes in the middle of a save is a clear error, and the next save makes it anew", "[checkpoint]") {
  for (const std::string point : {"after_rank_file", "before_manifest", "before_rename"}) {
    CAPTURE(point);
    const TemporaryDirectory run;
    const std::vector<NamedTensor> state = global_state(11);
    save_on(2, run.path(), state, 10);
    const auto errors = errors_on_two_ranks([&](HostComm& comm, int rank) {
      SaveOptions options;
      options.fault = [&](std::string_view reached, int64_t) {
        if (rank == 0 && reached == point) {
          std::filesystem::remove_all(run.path() / "checkpoints");
        }
      };
      save_checkpoint(comm, run.path(), content_of(state, 20, rank, 2), options);
    });
    CHECK_THAT(errors[0], ContainsSubstring("No such file or directory") && ContainsSubstring("step_00000020"));
    CHECK(errors[0] == errors[1]);
    save_on(2, run.path(), state, 30);
    CHECK(names_in(checkpoints_directory(run.path())) == std::vector<std::string>{"latest", "step_00000030"});
    CHECK(same_state(load_state(run.path() / "checkpoints/step_00000030"), state));
  }
}

TEST_CASE("a disk that refuses bytes or names gives a clear error", "[checkpoint]") {
  const TemporaryDirectory run;
  const std::vector<NamedTensor> state = global_state(7);
  save_alone(run.path(), state, 10);
  const auto only_old = std::vector<std::string>{"latest", "step_00000010"};
  // In a child that ends by exit(): HDF5 once crashed there after a close that had failed, which hid the exit code.
  const int status = end_of_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const size_t open_before = names_in("/proc/self/fd").size();
    for (const rlim_t limit : {4000, 3500, 2500, 1500, 500, 1, 0}) {
      const rlimit small{.rlim_cur = limit, .rlim_max = RLIM_INFINITY};
      LH_CHECK(::setrlimit(RLIMIT_FSIZE, &small) == 0, "no limit of {}", limit);
      std::string message;
      try {
        save_alone(run.path(), global_state(8), 20);
      } catch (const CheckpointError& error) {
        message = error.what();
      }
      LH_CHECK(message.find("File too large") != std::string::npos && message.find("step_00000020") != std::string::npos,
               "with {} bytes: \"{}\"", limit, message);
      LH_CHECK(names_in(checkpoints_directory(run.path())) == only_old, "with {} bytes something was left", limit);
    }
    LH_CHECK(names_in("/proc/self/fd").size() == open_before, "descriptors are open still");
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(same_state(load_state(find_latest(run.path(), kIgnore)->path), state));
  save_alone(run.path(), global_state(8), 20);  // a failed save leaves nothing behind that hinders the next
  CHECK(same_state(load_state(find_latest(run.path(), kIgnore)->path), global_state(8)));

  write_text_atomically(run.path() / "file", "", ErrorKind::Checkpoint);
  CHECK_THROWS_AS(save_alone(run.path() / "file", state, 10), CheckpointError);
}
