// See publish.h.
#include "checkpoint/publish.h"

#include <fcntl.h>
#include <stdio.h>  // renameat2

#include <algorithm>
#include <cerrno>
#include <vector>

#include "checkpoint/directory_names.h"
#include "checkpoint/find.h"
#include "checkpoint/manifest.h"
#include "storage/atomic_write.h"
#include "storage/io_error.h"

namespace longhaul {

namespace fs = std::filesystem;

namespace {

// False where the kernel or the file system does not know how.
bool exchange(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) {
    return true;
  }
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) {
    return false;
  }
  throw_io_error(ErrorKind::Checkpoint,
                 fmt::format("cannot exchange {} and {}: {}", a.string(), b.string(), describe_errno(errno)));
}

void remove_tree(const fs::path& directory) {
  std::error_code error;
  fs::remove_all(directory, error);
  if (error) {
    throw_io_error(ErrorKind::Checkpoint, fmt::format("cannot remove {}: {}", directory.string(), describe_errno(error.value())));
  }
}

}  // namespace

void publish_directory(const fs::path& staging, const fs::path& target, Replacement replacement,
                       const std::function<void()>& between_renames) {
  sync_directory(staging, ErrorKind::Checkpoint);
  if (!fs::exists(target)) {
    rename_durably(staging, target, ErrorKind::Checkpoint);
    return;
  }
  if (replacement == Replacement::Exchange && exchange(staging, target)) {
    sync_directory(target.parent_path(), ErrorKind::Checkpoint);
    remove_tree(staging);  // the old one
    return;
  }
  const fs::path aside = hidden_beside(target, kReplacedSuffix);
  remove_tree(aside);
  rename_durably(target, aside, ErrorKind::Checkpoint);
  between_renames();
  rename_durably(staging, target, ErrorKind::Checkpoint);
  remove_tree(aside);
}

void remove_checkpoint(const fs::path& directory) {
  const fs::path removing = hidden_beside(directory, kRemovingSuffix);
  remove_tree(removing);
  rename_durably(directory, removing, ErrorKind::Checkpoint);
  remove_tree(removing);
}

void recover_directory(const fs::path& checkpoints, const WarningSink& warn) {
  for (const std::string& name : names_in(checkpoints)) {
    if (strip_hidden(name, kRemovingSuffix)) {
      remove_tree(checkpoints / name);
    }
    if (strip_hidden(name, kInProgressSuffix)) {
      warn(fmt::format("removing {}, left by a save that did not finish", (checkpoints / name).string()));
      remove_tree(checkpoints / name);
    }
    if (name.starts_with(fmt::format("{}.tmp-", kLatestName))) {
      fs::remove(checkpoints / name);
    }
    const auto replaced = strip_hidden(name, kReplacedSuffix);
    if (!replaced) {
      continue;
    }
    if (incomplete_reason(checkpoints / *replaced).empty()) {
      remove_tree(checkpoints / name);
    } else if (incomplete_reason(checkpoints / name).empty()) {
      remove_tree(checkpoints / *replaced);
      rename_durably(checkpoints / name, checkpoints / *replaced, ErrorKind::Checkpoint);
      warn(fmt::format("recovered {}: a save that was to replace it did not finish", *replaced));
    }
  }
}

void apply_retention(const RetentionRequest& request, const WarningSink& warn) {
  std::vector<int64_t> periodic;
  for (const std::string& name : names_in(request.checkpoints)) {
    const auto step = parse_step_name(name);
    if (!step || *step > request.current || !fs::exists(request.checkpoints / name / kManifestName)) {
      continue;
    }
    if (request.major_every > 0 && *step % request.major_every == 0) {
      continue;
    }
    try {
      if (read_manifest(request.checkpoints / name).info.role == CheckpointRole::Periodic) {
        periodic.push_back(*step);
      }
    } catch (const CheckpointError& error) {
      warn(fmt::format("{} is kept: {}", name, error.what()));
    }
  }
  std::sort(periodic.begin(), periodic.end(), std::greater<>());
  for (size_t i = static_cast<size_t>(request.keep); i < periodic.size(); ++i) {
    if (periodic[i] != request.current) {
      remove_checkpoint(request.checkpoints / step_name(periodic[i]));
    }
  }
}

}  // namespace longhaul
