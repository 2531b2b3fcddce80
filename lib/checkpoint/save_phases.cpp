// See save_phases.h.
#include "checkpoint/save_phases.h"

#include "checkpoint/directory_names.h"
#include "checkpoint/find.h"
#include "checkpoint/index_file.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rank_report.h"
#include "storage/atomic_write.h"

namespace longhaul {

namespace fs = std::filesystem;

SavePaths save_paths(const fs::path& target) { return {.target = target, .staging = hidden_beside(target, kInProgressSuffix)}; }

void prepare_checkpoints(const fs::path& checkpoints, const WarningSink& warn) {
  fs::create_directories(checkpoints);
  recover_directory(checkpoints, warn);
}

void prepare_staging(const SavePaths& paths, const WarningSink& warn) {
  if (fs::exists(paths.staging)) {
    warn(fmt::format("removing {}, left by a save that did not finish", paths.staging.string()));
    fs::remove_all(paths.staging);
  }
  if (fs::exists(paths.target)) {
    if (const std::string reason = incomplete_reason(paths.target); !reason.empty()) {
      warn(fmt::format("replacing the incomplete {}: {}", paths.target.string(), reason));
    }
  }
  fs::create_directories(paths.staging);
}

int64_t complete_checkpoint(const SavePaths& paths, const CheckpointContent& content, std::span<const std::string> reports,
                            Replacement replacement, SaveProgress& progress) {
  Manifest manifest = assemble_manifest(content, reports);
  progress.reach("before_index");
  const fs::path index = paths.staging / kIndexName;
  write_index_file(index, manifest);
  const FileHash index_hash = hash_file(index, ErrorKind::Checkpoint);
  progress.wrote(index_hash.bytes);
  manifest.files.emplace(kIndexName, index_hash);
  progress.reach("before_manifest");
  const std::string text = to_text(manifest);
  write_text_atomically(paths.staging / kManifestName, text, ErrorKind::Checkpoint, [&](int64_t bytes) { progress.wrote(bytes); });
  auto total = static_cast<int64_t>(text.size());
  for (const auto& [name, file] : manifest.files) {
    total += file.bytes;
  }
  progress.reach("before_rename");
  publish_directory(paths.staging, paths.target, replacement, [&] { progress.reach("between_renames"); });
  return total;
}

void tidy_checkpoints(const TidyRequest& request, const SaveProgress& progress, const WarningSink& warn) {
  progress.reach("before_latest");
  write_text_atomically(request.checkpoints / kLatestName, step_name(request.step) + "\n", ErrorKind::Checkpoint);
  progress.reach("before_retention");
  apply_retention(
      {.checkpoints = request.checkpoints, .current = request.step, .keep = request.keep, .major_every = request.major_every}, warn);
}

void remove_quietly(const fs::path& directory) noexcept {
  std::error_code ignored;
  fs::remove_all(directory, ignored);
}

}  // namespace longhaul
