// See run_directory.h.
#include "train/run_directory.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/find.h"
#include "storage/atomic_write.h"

namespace longhaul {
namespace {

std::optional<int64_t> last_logged_step(const std::filesystem::path& metrics) {
  std::ifstream file(metrics);
  std::optional<int64_t> step;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
    if (event.is_object() && event.value("type", "") == "step") {
      step = event.value("step", int64_t{0});
    }
  }
  return step;
}

}  // namespace

std::optional<std::string> existing_run(const std::filesystem::path& directory) {
  if (!std::filesystem::exists(directory / "metrics.jsonl") && !std::filesystem::exists(directory / "checkpoints")) {
    return std::nullopt;
  }
  if (const auto found = find_latest(directory, [](const std::string&) {})) {
    return fmt::format("a checkpoint of step {}", found->step);
  }
  const std::optional<int64_t> step = last_logged_step(directory / "metrics.jsonl");
  return step ? fmt::format("steps up to {}, without a checkpoint", *step) : std::string("a run without completed steps");
}

void clear_run(const std::filesystem::path& directory) {
  for (const char* name : {"metrics.jsonl", "log.txt", "recipe.yaml", "report.html"}) {
    std::filesystem::remove(directory / name);
  }
  std::filesystem::remove_all(directory / "checkpoints");
}

void write_recipe(const std::filesystem::path& directory, const std::string& recipe_text) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    throw RecipeError("run.dir: {} cannot be made: {}; choose another with --run-dir", directory.string(), error.message());
  }
  write_text_atomically(directory / "recipe.yaml", recipe_text, ErrorKind::Recipe);
}

}  // namespace longhaul
