// See save.h.
#include "checkpoint/save.h"

#include <string>
#include <vector>

#include "checkpoint/directory_names.h"
#include "checkpoint/find.h"
#include "checkpoint/index_file.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rank_report.h"
#include "checkpoint/together.h"
#include "storage/atomic_write.h"

namespace longhaul {

namespace fs = std::filesystem;

namespace {

struct Paths {
  fs::path target;
  fs::path staging;
};

void warn(const SaveOptions& options, const std::string& text) {
  if (options.warn) {
    options.warn(text);
  }
}

void prepare(const Paths& paths, const SaveOptions& options) {
  if (fs::exists(paths.staging)) {
    warn(options, fmt::format("removing {}, left by a save that did not finish", paths.staging.string()));
    fs::remove_all(paths.staging);
  }
  if (fs::exists(paths.target)) {
    if (const std::string reason = incomplete_reason(paths.target); !reason.empty()) {
      warn(options, fmt::format("replacing the incomplete {}: {}", paths.target.string(), reason));
    }
  }
  fs::create_directories(paths.staging);
}

// Index and manifest into the staging directory; returns the bytes of all files.
int64_t write_tables(const Paths& paths, Manifest manifest, SaveProgress& progress) {
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
  return total;
}

void remove_quietly(const fs::path& directory) noexcept {
  std::error_code ignored;
  fs::remove_all(directory, ignored);
}

SavedCheckpoint write_and_publish(HostComm& comm, const Paths& paths, const CheckpointContent& content, const SaveOptions& options,
                                  SaveProgress& progress) {
  const bool is_first = comm.rank() == 0;
  const std::string action = fmt::format("saving the checkpoint {}", paths.target.string());
  run_together(comm, action, [&] {
    if (is_first) {
      prepare(paths, options);
    }
  });
  std::string report;
  run_together(comm, action, [&] {
    const WrittenFile file = write_rank_file(paths.staging / rank_file_name(comm.rank()), content.pieces, options.copy, progress);
    report = report_text(file, content.rank_documents);
    progress.reach("after_rank_file");
  });
  const std::vector<std::string> reports = gather_reports(comm, report);
  int64_t bytes = 0;
  run_together(comm, action, [&] {
    if (is_first) {
      bytes = write_tables(paths, assemble_manifest(content, reports), progress);
      progress.reach("before_rename");
      publish_directory(paths.staging, paths.target, options.replacement, [&] { progress.reach("between_renames"); });
    }
  });
  comm.broadcast_value(bytes, 0);
  return {.path = paths.target, .bytes = bytes};
}

SavedCheckpoint write_or_clean_up(HostComm& comm, const Paths& paths, const CheckpointContent& content, const SaveOptions& options,
                                  SaveProgress& progress) {
  try {
    return write_and_publish(comm, paths, content, options, progress);
  } catch (const CommError&) {
    throw;  // other ranks may still be writing
  } catch (const Error&) {
    if (comm.rank() == 0) {
      remove_quietly(paths.staging);  // all ranks have agreed, so none writes any more; the space is given back
    }
    throw;
  }
}

Paths paths_of(const fs::path& target) { return {.target = target, .staging = hidden_beside(target, kInProgressSuffix)}; }

}  // namespace

SavedCheckpoint write_checkpoint(HostComm& comm, const fs::path& target, const CheckpointContent& content,
                                 const SaveOptions& options) {
  SaveProgress progress(options.fault);
  const fs::path absolute = fs::absolute(target).lexically_normal();
  return write_or_clean_up(comm, paths_of(absolute.has_filename() ? absolute : absolute.parent_path()), content, options, progress);
}

SavedCheckpoint save_checkpoint(HostComm& comm, const fs::path& run_directory, const CheckpointContent& content,
                                const SaveOptions& options) {
  SaveProgress progress(options.fault);
  const fs::path checkpoints = checkpoints_directory(run_directory);
  const std::string name = step_name(content.info.step);
  run_together(comm, fmt::format("preparing {}", checkpoints.string()), [&] {
    if (comm.rank() == 0) {
      fs::create_directories(checkpoints);
      recover_directory(checkpoints, [&](const std::string& text) { warn(options, text); });
    }
  });
  const SavedCheckpoint saved = write_or_clean_up(comm, paths_of(checkpoints / name), content, options, progress);
  run_together(comm, fmt::format("after saving {}: tidying {}", name, checkpoints.string()), [&] {
    if (comm.rank() != 0) {
      return;
    }
    progress.reach("before_latest");
    write_text_atomically(checkpoints / kLatestName, name + "\n", ErrorKind::Checkpoint);
    progress.reach("before_retention");
    apply_retention({.checkpoints = checkpoints, .current = content.info.step, .keep = options.keep},
                    [&](const std::string& text) { warn(options, text); });
  });
  return saved;
}

}  // namespace longhaul
