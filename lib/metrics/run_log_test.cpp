// What reaches metrics.jsonl, log.txt and the terminal.
#include "metrics/run_log.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"

namespace longhaul {
namespace {

using nlohmann::json;

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A run directory and what stands for the terminal.
class Scene {
 public:
  Scene() : directory_(std::filesystem::temp_directory_path() / ("longhaul_run_log_" + std::to_string(getpid()))), out_(std::tmpfile()) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  ~Scene() {
    std::fclose(out_);
    std::filesystem::remove_all(directory_);
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  [[nodiscard]] Terminal terminal(bool is_live) const { return {.out = out_, .is_live = is_live, .has_colour = false, .columns = 60}; }
  [[nodiscard]] std::string printed() const {
    std::string text(static_cast<size_t>(std::ftell(out_)), ' ');
    std::rewind(out_);
    const size_t read = std::fread(text.data(), 1, text.size(), out_);
    text.resize(read);
    return text;
  }

 private:
  std::filesystem::path directory_;
  std::FILE* out_;
};

TEST_CASE("events are one JSON object a line, appended, with null for what is not finite", "[metrics]") {
  const Scene scene;
  for (int run = 0; run < 2; ++run) {
    RunLog log(RunLog::Role::Writer, scene.terminal(false));
    log.record({{"type", "before open"}});
    log.open(scene.directory());
    log.record({{"type", "step"}, {"step", run}, {"loss", std::nan("")}, {"text", "two\nlines"}, {"bytes", "\xff"}});
    log.warn("disk");
  }
  std::ifstream file(scene.directory() / "metrics.jsonl");
  std::vector<json> events;
  for (std::string line; std::getline(file, line);) {
    events.push_back(json::parse(line));
  }
  REQUIRE(events.size() == 4);
  CHECK(events[0]["step"] == 0);
  CHECK(events[2]["step"] == 1);
  CHECK(events[0]["loss"].is_null());
  CHECK(events[0]["text"] == "two\nlines");
  CHECK(events[1] == json{{"type", "warning"}, {"message", "disk"}});
}

TEST_CASE("without a terminal every line is printed once, without control characters", "[metrics]") {
  const Scene scene;
  {
    RunLog log(RunLog::Role::Writer, scene.terminal(false));
    log.open(scene.directory());
    log.say("plan");
    log.progress("step 1/2", {.done = 1, .total = 2, .note = "loss 5"});
    log.progress("step 2/2", {.done = 2, .total = 2, .note = "loss 4"});
  }
  CHECK(scene.printed() == "plan\nstep 1/2\nstep 2/2\n");
  CHECK(content(scene.directory() / "log.txt") == "plan\nstep 1/2\nstep 2/2\n");
}

TEST_CASE("on a terminal a bar stays below the lines and is gone at the end; the log has none", "[metrics]") {
  const Scene scene;
  {
    RunLog log(RunLog::Role::Writer, scene.terminal(true));
    log.open(scene.directory());
    log.progress("step 1/4", {.done = 1, .total = 4, .note = ""});
    log.say("a line");
  }
  const std::string bar = progress_bar({.done = 1, .total = 4, .note = ""}, 59, Colour::No);
  CHECK(scene.printed() == "step 1/4\n" + bar + "\r\033[Ka line\n" + bar + "\r\033[K");
  CHECK(content(scene.directory() / "log.txt") == "step 1/4\na line\n");
}

TEST_CASE("ranks that do not write leave no trace", "[metrics]") {
  const Scene scene;
  {
    RunLog log(RunLog::Role::Silent, scene.terminal(true));
    log.open(scene.directory());
    log.record({{"type", "step"}});
    log.progress("step", {.done = 1, .total = 2, .note = ""});
    log.warn("w");
  }
  CHECK(scene.printed().empty());
  CHECK(std::filesystem::is_empty(scene.directory()));
}

TEST_CASE("a directory that cannot be written to is a data error", "[metrics]") {
  RunLog log(RunLog::Role::Writer, Terminal{});
  CHECK_THROWS_AS(log.open("/nowhere/run"), DataError);
}

TEST_CASE("a full disk loses lines and does not end the run", "[metrics]") {
  if (!std::filesystem::exists("/dev/full")) {
    SKIP("there is no /dev/full");
  }
  const Scene scene;
  std::filesystem::create_symlink("/dev/full", scene.directory() / "metrics.jsonl");
  RunLog log(RunLog::Role::Writer, scene.terminal(false));
  log.open(scene.directory());
  CHECK_NOTHROW(log.record({{"type", "step"}}));
  CHECK_NOTHROW(log.record({{"type", "step"}}));
}

TEST_CASE("the bar shows how far the run is in at most the columns there are", "[metrics]") {
  CHECK(progress_bar({.done = 5, .total = 10, .note = "left 3s"}, 47, Colour::No) == "[============>           ]  50 %  5/10  left 3s");
  CHECK(progress_bar({.done = 0, .total = 10, .note = ""}, 25, Colour::No) == "[>          ]   0 %  0/10");
  CHECK(progress_bar({.done = 10, .total = 10, .note = ""}, 25, Colour::No) == "[==========] 100 %  10/10");
  CHECK(progress_bar({.done = 12, .total = 10, .note = ""}, 25, Colour::No).starts_with("[==========] 100 %"));
  CHECK(progress_bar({.done = 0, .total = 0, .note = ""}, 25, Colour::No).find("nan") == std::string::npos);
  const RunProgress long_note{.done = 1, .total = 3, .note = std::string(200, 'x')};
  for (const int columns : {10, 20, 40, 79, 300}) {
    CHECK(static_cast<int>(progress_bar(long_note, columns, Colour::No).size()) <= columns);
  }
  CHECK(progress_bar({.done = 5, .total = 10, .note = ""}, 40, Colour::Yes).find("\033[36m") == 0);
}

TEST_CASE("stdout of a test is a file, and dumb terminals have no bar", "[metrics]") {
  CHECK_FALSE(standard_terminal(Env({{"TERM", "dumb"}})).is_live);
  CHECK_FALSE(standard_terminal(Env({{"TERM", "xterm"}, {"NO_COLOR", "1"}})).has_colour);
}

}  // namespace
}  // namespace longhaul
