// See find.h.
#include "checkpoint/find.h"

#include <algorithm>

#include "checkpoint/directory_names.h"

namespace longhaul {

namespace fs = std::filesystem;

namespace {

enum class Condition : uint8_t { Named, Replaced, InProgress };  // what the name says

struct Candidate {
  int64_t step = 0;
  Condition condition = Condition::Named;
  fs::path path;
};

// Newest first; for one step the named one first.
std::vector<Candidate> candidates_in(const fs::path& checkpoints) {
  std::vector<Candidate> candidates;
  const auto add = [&](const std::optional<std::string>& step_directory, Condition condition, const std::string& name) {
    if (step_directory) {
      if (const auto step = parse_step_name(*step_directory)) {
        candidates.push_back({.step = *step, .condition = condition, .path = checkpoints / name});
      }
    }
  };
  for (const std::string& name : names_in(checkpoints)) {
    add(name, Condition::Named, name);
    add(strip_hidden(name, kReplacedSuffix), Condition::Replaced, name);
    add(strip_hidden(name, kInProgressSuffix), Condition::InProgress, name);
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.step != b.step ? a.step > b.step : a.condition < b.condition;
  });
  return candidates;
}

std::string missing_document(const JsonDocuments& have, const std::vector<std::string>& required) {
  for (const std::string& name : required) {
    if (!have.contains(name)) {
      return name;
    }
  }
  return {};
}

}  // namespace

std::string incomplete_reason(const fs::path& directory, const RequiredDocuments& required) {
  try {
    return incomplete_reason(directory, read_manifest(directory), required);
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

std::string incomplete_reason(const fs::path& directory, const Manifest& manifest, const RequiredDocuments& required) {
  for (const auto& [name, file] : manifest.files) {
    std::error_code error;
    const auto bytes = fs::file_size(directory / name, error);
    if (error) {
      return fmt::format("{} is missing: {}", name, error.message());
    }
    if (static_cast<int64_t>(bytes) != file.bytes) {
      return fmt::format("{} has {} bytes, wanted {}", name, bytes, file.bytes);
    }
  }
  if (const std::string name = missing_document(manifest.documents, required.shared); !name.empty()) {
    return fmt::format("the document \"{}\" is missing", name);
  }
  for (size_t rank = 0; rank < manifest.rank_documents.size(); ++rank) {
    if (const std::string name = missing_document(manifest.rank_documents[rank], required.of_every_rank); !name.empty()) {
      return fmt::format("the document \"{}\" of rank {} is missing", name, rank);
    }
  }
  return {};
}

std::optional<FoundCheckpoint> find_latest(const fs::path& run_directory, const std::function<void(const std::string&)>& skipped,
                                           const RequiredDocuments& required) {
  for (const Candidate& candidate : candidates_in(checkpoints_directory(run_directory))) {
    const std::string reason = candidate.condition == Condition::InProgress ? "its save did not finish"
                                                                           : incomplete_reason(candidate.path, required);
    if (reason.empty()) {
      return FoundCheckpoint{.step = candidate.step, .path = candidate.path};
    }
    skipped(fmt::format("skipped incomplete {}: {}", step_name(candidate.step), reason));
  }
  return std::nullopt;
}

}  // namespace longhaul
