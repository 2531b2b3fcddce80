// See save.h.
#include "checkpoint/save.h"

#include <string>
#include <vector>

#include "checkpoint/directory_names.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/rank_report.h"
#include "checkpoint/save_phases.h"
#include "checkpoint/together.h"

namespace longhaul {

namespace fs = std::filesystem;

namespace {

WarningSink warning_sink(const SaveOptions& options) {
  return [&options](const std::string& text) {
    if (options.warn) {
      options.warn(text);
    }
  };
}

SavedCheckpoint write_and_publish(HostComm& comm, const SavePaths& paths, const CheckpointContent& content, const SaveOptions& options,
                                  SaveProgress& progress) {
  const bool is_first = comm.rank() == 0;
  const std::string action = fmt::format("saving the checkpoint {}", paths.target.string());
  run_together(comm, action, [&] {
    if (is_first) {
      prepare_staging(paths, warning_sink(options));
    }
  });
  std::string report;
  run_together(comm, action, [&] {
    const WrittenFile file = write_rank_file(paths.staging / rank_file_name(comm.rank()), content.pieces, options.compression,
                                             options.copy, progress);
    report = report_text(file, content.rank_documents);
    progress.reach("after_rank_file");
  });
  const std::vector<std::string> reports = gather_reports(comm, report);
  int64_t bytes = 0;
  run_together(comm, action, [&] {
    if (is_first) {
      bytes = complete_checkpoint(paths, content, reports, options.replacement, progress);
    }
  });
  comm.broadcast_value(bytes, 0);
  return {.path = paths.target, .bytes = bytes};
}

SavedCheckpoint write_or_clean_up(HostComm& comm, const SavePaths& paths, const CheckpointContent& content, const SaveOptions& options,
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

}  // namespace

SavedCheckpoint write_checkpoint(HostComm& comm, const fs::path& target, const CheckpointContent& content,
                                 const SaveOptions& options) {
  SaveProgress progress(options.fault);
  const fs::path absolute = fs::absolute(target).lexically_normal();
  return write_or_clean_up(comm, save_paths(absolute.has_filename() ? absolute : absolute.parent_path()), content, options, progress);
}

SavedCheckpoint save_checkpoint(HostComm& comm, const fs::path& run_directory, const CheckpointContent& content,
                                const SaveOptions& options) {
  SaveProgress progress(options.fault);
  const fs::path checkpoints = checkpoints_directory(run_directory);
  const std::string name = step_name(content.info.step);
  run_together(comm, fmt::format("preparing {}", checkpoints.string()), [&] {
    if (comm.rank() == 0) {
      prepare_checkpoints(checkpoints, warning_sink(options));
    }
  });
  const SavedCheckpoint saved = write_or_clean_up(comm, save_paths(checkpoints / name), content, options, progress);
  run_together(comm, fmt::format("after saving {}: tidying {}", name, checkpoints.string()), [&] {
    if (comm.rank() == 0) {
      tidy_checkpoints(
          {.checkpoints = checkpoints, .step = content.info.step, .keep = options.keep, .major_every = options.major_every}, progress,
          warning_sink(options));
    }
  });
  return saved;
}

}  // namespace longhaul
