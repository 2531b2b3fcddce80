// Reading a run directory: which line counts, what is skipped, what is missing; and the summary of it.
#include "report/run_record.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <fstream>

#include "base/error.h"
#include "report/summary.h"

namespace longhaul::report {
namespace {

// A run directory for the life of a test.
class Directory {
 public:
  explicit Directory(const std::string& metrics) : path_(std::filesystem::temp_directory_path() / ("longhaul_report_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
    write("metrics.jsonl", metrics);
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  void write(const std::string& name, const std::string& text) const { std::ofstream(path_ / name) << text; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

constexpr const char* kRun =
    R"({"type":"header","name":"a","backend":"cpu","world_size":4,"parameters":1000,"total_steps":4,"recipe":"of the header"}
{"type":"stage","stage":"8k","sequence_length":8192,"first_step":1,"last_step":4,"grid":"g"}
{"type":"step","step":1,"stage":"8k","sequence_length":8192,"loss":5.0,"tokens":10,"tokens_per_second":100,"step_ms":100,"mfu":null}
{"type":"step","step":2,"stage":"8k","loss":4.0,"tokens":20,"tokens_per_second":300,"step_ms":100}
{"type":"step","step":3,"stage":"8k","loss":null,"tokens":30,"tokens_per_second":200,"step_ms":100}
{"type":"validation","step":2,"loss":4.5,"bits_per_byte":6.5,"targets":7}
{"type":"checkpoint","step":2,"path":"c/2","bytes":1048576,"seconds":0.5}
{"type":"warning","message":"watch out"}
{"type":"end","reason":"preempted","step":3}
{"type":"resume","step":2,"checkpoint":"c/2"}
{"type":"stage","stage":"8k","sequence_length":8192,"first_step":1,"last_step":4,"grid":"another"}
{"type":"step","step":3,"stage":"8k","loss":3.5,"tokens":30,"tokens_per_second":400,"step_ms":100}
{"type":"novelty","of":"a later version"}
not json
{"type":"step","loss":3.0}
{"type":"step","step":4,"lo)";

TEST_CASE("the last line of a step wins and broken lines are skipped and counted", "[report]") {
  const Directory directory(kRun);
  const RunRecord run = read_run(directory.path());
  REQUIRE(run.steps.size() == 3);
  CHECK(run.steps[2].loss == 3.5);
  CHECK(run.steps[1].loss == 4.0);
  CHECK(run.skipped_lines == 3);
  REQUIRE(run.stages.size() == 1);
  CHECK(run.stages[0].grid == "another");
  REQUIRE(run.resumes.size() == 1);
  CHECK(run.resumes[0].step == 2);
  REQUIRE(run.warnings.size() == 1);
  CHECK(run.warnings[0].after_step == 3);
  CHECK_FALSE(run.end.has_value());  // the run went on after it
}

TEST_CASE("missing and null numbers are not zero", "[report]") {
  const Directory directory(kRun);
  const RunRecord run = read_run(directory.path());
  CHECK(std::isnan(run.steps[0].mfu));
  CHECK(std::isnan(run.steps[0].gradient_norm));
  CHECK(std::isnan(run.total_tokens));
  CHECK(run.parameters == 1000);
}

TEST_CASE("the recipe is the directory's, or else the header's", "[report]") {
  const Directory directory(kRun);
  CHECK(read_run(directory.path()).recipe == "of the header");
  directory.write("recipe.yaml", "of the directory");
  CHECK(read_run(directory.path()).recipe == "of the directory");
}

TEST_CASE("a run without a header is named after its directory", "[report]") {
  const Directory directory("");
  const RunRecord run = read_run(directory.path() / "");
  CHECK(run.name == directory.path().filename().string());
  CHECK(run.steps.empty());
  CHECK(summarise(run).last_step == 0);
}

TEST_CASE("a missing directory and a missing file are data errors that name them", "[report]") {
  using Catch::Matchers::ContainsSubstring;
  using Catch::Matchers::MessageMatches;
  CHECK_THROWS_MATCHES(read_run("/nowhere/run"), DataError, MessageMatches(ContainsSubstring("/nowhere/run")));
  const Directory directory("");
  std::filesystem::remove(directory.path() / "metrics.jsonl");
  CHECK_THROWS_MATCHES(read_run(directory.path()), DataError, MessageMatches(ContainsSubstring("metrics.jsonl")));
}

TEST_CASE("the summary takes medians, last values and the best validation", "[report]") {
  const Directory directory(std::string(kRun) + "\n" + R"({"type":"validation","step":3,"loss":4.7})" + "\n" +
                            R"({"type":"end","reason":"finished","step":3})" + "\n");
  const RunRecord run = read_run(directory.path());
  const Summary summary = summarise(run);
  CHECK(summary.last_step == 3);
  CHECK(summary.tokens == 30);
  CHECK(summary.train_loss == 3.5);
  CHECK(summary.train_loss_steps == 1);
  CHECK(summary.tokens_per_second == 300);
  CHECK(summary.validation_loss == 4.7);
  CHECK(summary.validation_step == 3);
  CHECK(std::isnan(summary.bits_per_byte));  // of the last validation, which has none
  CHECK(summary.best_validation_loss == 4.5);
  CHECK(summary.best_validation_step == 2);
  CHECK(std::isnan(summary.peak_memory_bytes));
  CHECK(status_of(run).is_finished);
}

}  // namespace
}  // namespace longhaul::report
