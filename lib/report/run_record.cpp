// See run_record.h.
#include "report/run_record.h"

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"

namespace longhaul::report {
namespace {

using nlohmann::json;

double number(const json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number() ? found->get<double>() : kMissing;
}

std::string text(const json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : std::string();
}

int64_t integer(const json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

bool has_step(const json& event) {
  const auto found = event.find("step");
  return found != event.end() && found->is_number_integer();
}

// Collects events; later ones of the same step replace earlier ones.
class Reader {
 public:
  // False when the line holds nothing that can be used. Unknown types are fine: they are of a later version.
  bool add(const std::string& line) {
    const json event = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object()) {
      return false;
    }
    const std::string type = text(event, "type");
    const bool is_of_a_step = type == "step" || type == "validation" || type == "checkpoint" || type == "resume";
    if (type.empty() || (is_of_a_step && !has_step(event))) {
      return false;
    }
    add(type, event);
    return true;
  }

  RunRecord finish() {
    move_values(steps_, run_.steps);
    move_values(validations_, run_.validations);
    move_values(checkpoints_, run_.checkpoints);
    move_values(stages_, run_.stages);
    return std::move(run_);
  }

 private:
  void add(const std::string& type, const json& event) {
    if (type == "header") {
      add_header(event);
    } else if (type == "step") {
      add_step(event);
    } else if (type == "validation") {
      const int64_t step = integer(event, "step");
      validations_[step] = {.step = step,
                            .stage = text(event, "stage"),
                            .loss = number(event, "loss"),
                            .bits_per_byte = number(event, "bits_per_byte"),
                            .targets = number(event, "targets"),
                            .seconds = number(event, "seconds")};
    } else if (type == "stage") {
      const int64_t first = integer(event, "first_step");
      stages_[first] = {.name = text(event, "stage"),
                        .sequence_length = integer(event, "sequence_length"),
                        .first_step = first,
                        .last_step = integer(event, "last_step"),
                        .grid = text(event, "grid")};
    } else if (type == "checkpoint") {
      const int64_t step = integer(event, "step");
      checkpoints_[step] = {.step = step, .path = text(event, "path"), .bytes = number(event, "bytes"), .seconds = number(event, "seconds")};
    } else if (type == "resume") {
      run_.resumes.push_back({.step = integer(event, "step"), .checkpoint = text(event, "checkpoint")});
      run_.end.reset();
    } else if (type == "warning") {
      run_.warnings.push_back({.after_step = latest_step_, .message = text(event, "message")});
    } else if (type == "end") {
      run_.end = EndRecord{.reason = text(event, "reason"), .step = integer(event, "step")};
    }
  }

  void add_header(const json& event) {
    run_.name = text(event, "name");
    run_.backend = text(event, "backend");
    run_.world_size = number(event, "world_size");
    run_.parameters = number(event, "parameters");
    run_.active_parameters = number(event, "active_parameters");
    run_.total_steps = number(event, "total_steps");
    run_.total_tokens = number(event, "total_tokens");
    run_.recipe = text(event, "recipe");
  }

  void add_step(const json& event) {
    latest_step_ = integer(event, "step");
    run_.end.reset();
    steps_[latest_step_] = {.step = latest_step_,
                            .stage = text(event, "stage"),
                            .sequence_length = integer(event, "sequence_length"),
                            .loss = number(event, "loss"),
                            .gradient_norm = number(event, "grad_norm"),
                            .learning_rate = number(event, "learning_rate"),
                            .tokens = number(event, "tokens"),
                            .tokens_per_second = number(event, "tokens_per_second"),
                            .step_ms = number(event, "step_ms"),
                            .peak_memory_bytes = number(event, "peak_memory_bytes"),
                            .tflops_per_rank = number(event, "tflops_per_rank"),
                            .mfu = number(event, "mfu"),
                            .max_violation = number(event, "moe_max_violation")};
  }

  template <class Record>
  static void move_values(std::map<int64_t, Record>& from, std::vector<Record>& to) {
    for (auto& [key, record] : from) {
      to.push_back(std::move(record));
    }
  }

  RunRecord run_;
  std::map<int64_t, StepRecord> steps_;
  std::map<int64_t, ValidationRecord> validations_;
  std::map<int64_t, CheckpointRecord> checkpoints_;
  std::map<int64_t, StageRecord> stages_;
  int64_t latest_step_ = 0;
};

std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) {
    return std::nullopt;
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// "runs/a/" and "." have names too.
std::string name_of(const std::filesystem::path& directory) {
  std::filesystem::path path = std::filesystem::weakly_canonical(directory);
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

}  // namespace

RunRecord read_run(const std::filesystem::path& directory) {
  if (!std::filesystem::is_directory(directory)) {
    throw DataError("{}: there is no such directory; give the directory of a run, such as runs/quickstart", directory.string());
  }
  std::ifstream file(directory / "metrics.jsonl");
  if (!file) {
    throw DataError("{} cannot be read; give the directory of a run, which holds metrics.jsonl", (directory / "metrics.jsonl").string());
  }
  Reader reader;
  int64_t skipped = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && !reader.add(line)) {
      ++skipped;
    }
  }
  RunRecord run = reader.finish();
  run.directory = directory;
  run.skipped_lines = skipped;
  if (run.name.empty()) {
    run.name = name_of(directory);
  }
  if (std::optional<std::string> recipe = read_file(directory / "recipe.yaml")) {
    run.recipe = std::move(*recipe);
  }
  return run;
}

}  // namespace longhaul::report
