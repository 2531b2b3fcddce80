// See directory_names.h.
#include "checkpoint/directory_names.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "storage/io_error.h"

namespace longhaul {

namespace {
constexpr std::string_view kStepPrefix = "step_";
constexpr size_t kStepDigits = 8;
}  // namespace

std::filesystem::path checkpoints_directory(const std::filesystem::path& run_directory) { return run_directory / "checkpoints"; }

std::string step_name(int64_t step) {
  LH_CHECK(step >= 0, "a checkpoint cannot be of step {}", step);
  return fmt::format("{}{:08}", kStepPrefix, step);
}

std::string rank_file_name(int rank) { return fmt::format("rank_{:05}.h5", rank); }

std::optional<int64_t> parse_step_name(std::string_view name) {
  if (!name.starts_with(kStepPrefix) || name.size() < kStepPrefix.size() + kStepDigits) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(kStepPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc{} || end != digits.data() + digits.size() || step < 0 || step_name(step) != name) {
    return std::nullopt;
  }
  return step;
}

std::filesystem::path hidden_beside(const std::filesystem::path& directory, std::string_view suffix) {
  return directory.parent_path() / fmt::format(".{}{}", directory.filename().string(), suffix);
}

std::optional<std::string> strip_hidden(std::string_view name, std::string_view suffix) {
  if (name.size() <= suffix.size() + 1 || !name.starts_with('.') || !name.ends_with(suffix)) {
    return std::nullopt;
  }
  return std::string(name.substr(1, name.size() - suffix.size() - 1));
}

std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw_io_error(ErrorKind::Checkpoint, fmt::format("cannot list {}: {}", directory.string(), describe_errno(error.value())));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace longhaul
