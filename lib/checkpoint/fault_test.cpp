// A process that is killed at any point of a save leaves the previous checkpoint usable. Each case runs the save in a
// child process that kills itself.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <mutex>

#include "checkpoint/async_save.h"
#include "checkpoint/checkpoint_test_support.h"
#include "checkpoint/directory_names.h"
#include "checkpoint/find.h"
#include "storage/temporary_directory.h"

using namespace longhaul;
using namespace longhaul::checkpoint_test;

namespace fs = std::filesystem;

namespace {

// The signal that ended a child which ran `work`; 0 when it ran to its end.
int signal_in_child(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);
    try {
      work();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE((WIFSIGNALED(status) || WEXITSTATUS(status) == 0));
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

// A save on `size` ranks that kills the process when it passes the point number `fatal`, counted over all ranks.
struct KilledSave {
  int size = 1;
  int64_t step = 0;
  uint64_t seed = 0;
  Replacement replacement = Replacement::Exchange;
  enum class Mode : uint8_t { Waited, Background } mode = Mode::Waited;
  Compression compression = Compression::None;
};
int signal_of_save(const fs::path& run, const KilledSave& save, int fatal) {
  return signal_in_child([&] {
    const std::vector<NamedTensor> state = global_state(save.seed);
    std::mutex mutex;
    int passed = 0;
    SaveOptions options;
    options.replacement = save.replacement;
    options.keep = 1;
    options.compression = save.compression;
    options.fault = [&](std::string_view, int64_t) {
      const std::scoped_lock lock(mutex);
      if (passed++ == fatal) {
        ::kill(::getpid(), SIGKILL);
        ::pause();
      }
    };
    run_ranks(save.size, [&](HostComm& comm, int rank) {
      if (save.mode == KilledSave::Mode::Waited) {
        save_checkpoint(comm, run, content_of(state, save.step, rank, save.size), options);
        return;
      }
      AsyncSaver saver(comm, options, 2 * Staging::kBytes);
      saver.begin(run, content_of(state, save.step, rank, save.size));
      saver.release_tensors();
      static_cast<void>(saver.finish());
    });
  });
}

}  // namespace

TEST_CASE("a kill at every point of a save leaves a whole checkpoint, old or new", "[checkpoint]") {
  const std::vector<NamedTensor> old_state = global_state(1);
  const std::vector<NamedTensor> new_state = global_state(2);
  using Mode = KilledSave::Mode;
  struct Case {
    int size;
    Mode mode;
    Compression compression = Compression::None;
  };
  for (const auto& [size, mode, compression] : {Case{1, Mode::Waited}, Case{2, Mode::Waited}, Case{2, Mode::Background},
                                                Case{1, Mode::Waited, Compression::Zstd}, Case{2, Mode::Background, Compression::Zstd}}) {
    int old_found = 0;
    int new_found = 0;
    for (int fatal = 0;; ++fatal) {
      CAPTURE(size, static_cast<int>(mode), fatal);
      const TemporaryDirectory run(TemporaryDirectory::fast_parent());
      save_alone(run.path(), old_state, 10);
      const int signal = signal_of_save(run.path(), {.size = size, .step = 20, .seed = 2, .mode = mode, .compression = compression}, fatal);
      if (signal == 0) {
        break;  // the save has fewer points than that
      }
      REQUIRE(signal == SIGKILL);
      const auto found = find_latest(run.path(), kIgnore);
      REQUIRE(found);
      REQUIRE(same_state(load_state(found->path, size), found->step == 10 ? old_state : new_state));
      ++(found->step == 10 ? old_found : new_found);
      // The run goes on as if nothing had happened.
      save_alone(run.path(), new_state, 20, {.keep = 1});
      REQUIRE(names_in(checkpoints_directory(run.path())) == std::vector<std::string>{"latest", "step_00000020"});
      REQUIRE(same_state(load_state(find_latest(run.path(), kIgnore)->path), new_state));
    }
    CHECK(old_found >= 10);
    CHECK(new_found == 2);  // after the rename: before `latest`, and before retention
  }
}

TEST_CASE("a kill while a checkpoint of the same step is replaced leaves one of the two", "[checkpoint]") {
  const std::vector<NamedTensor> old_state = global_state(1);
  const std::vector<NamedTensor> new_state = global_state(2);
  for (const Replacement replacement : {Replacement::Exchange, Replacement::TwoRenames}) {
    int old_found = 0;
    int new_found = 0;
    for (int fatal = 0;; ++fatal) {
      CAPTURE(fatal, static_cast<int>(replacement));
      const TemporaryDirectory run(TemporaryDirectory::fast_parent());
      save_alone(run.path(), old_state, 20);
      if (signal_of_save(run.path(), {.step = 20, .seed = 2, .replacement = replacement}, fatal) == 0) {
        break;
      }
      const auto found = find_latest(run.path(), kIgnore);
      REQUIRE(found);
      REQUIRE(found->step == 20);
      const std::vector<NamedTensor> state = load_state(found->path);
      const bool is_new = same_state(state, new_state);
      REQUIRE((is_new || same_state(state, old_state)));
      ++(is_new ? new_found : old_found);
      save_alone(run.path(), global_state(3), 30, {.keep = 2});
      REQUIRE(same_state(load_state(checkpoints_directory(run.path()) / "step_00000020"), is_new ? new_state : old_state));
      REQUIRE_FALSE(fs::exists(checkpoints_directory(run.path()) / ".step_00000020.replaced"));
    }
    CHECK(old_found >= 10);
    CHECK(new_found == 2);
  }
}

TEST_CASE("a kill at any byte of any file leaves the previous checkpoint", "[checkpoint]") {
  const Compression compression = GENERATE(Compression::None, Compression::Zstd);
  // The kernel kills a process that writes past RLIMIT_FSIZE: at exactly that byte of the first file that is longer.
  const TemporaryDirectory run(TemporaryDirectory::fast_parent());
  const std::vector<NamedTensor> old_state = global_state(1);
  const fs::path path = save_alone(run.path(), old_state, 10, {.compression = compression}).path;
  int64_t longest = 0;
  for (const std::string& name : names_in(path)) {
    longest = std::max(longest, static_cast<int64_t>(fs::file_size(path / name)));
  }
  for (int64_t limit = 0; limit < longest; limit += 97) {
    CAPTURE(limit);
    const int signal = signal_in_child([&] {
      const rlimit size{.rlim_cur = static_cast<rlim_t>(limit), .rlim_max = static_cast<rlim_t>(limit)};
      ::setrlimit(RLIMIT_FSIZE, &size);
      save_alone(run.path(), global_state(2), 20, {.compression = compression});
    });
    REQUIRE(signal == SIGXFSZ);
    const auto found = find_latest(run.path(), kIgnore);
    REQUIRE(found);
    REQUIRE(found->step == 10);
    REQUIRE(same_state(load_state(found->path), old_state));
  }
}

TEST_CASE("a reader that opens a checkpoint the moment it appears finds it whole", "[checkpoint]") {
  const TemporaryDirectory run;
  constexpr int64_t kSaves = 20;
  const pid_t reader = ::fork();
  if (reader == 0) {
    int failures = 0;
    for (int64_t step = 1; step <= kSaves; ++step) {
      const fs::path path = checkpoints_directory(run.path()) / step_name(step);
      while (!fs::exists(path)) {
      }
      try {
        failures += same_state(load_state(path), global_state(static_cast<uint64_t>(step))) ? 0 : 1;
      } catch (...) {
        ++failures;
      }
    }
    ::_exit(failures);
  }
  for (int64_t step = 1; step <= kSaves; ++step) {
    save_alone(run.path(), global_state(static_cast<uint64_t>(step)), step, {.keep = kSaves});
  }
  int status = 0;
  REQUIRE(::waitpid(reader, &status, 0) == reader);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
