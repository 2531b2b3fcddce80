// See targets.h.
#include "convert/targets.h"

#include "base/error.h"
#include "checkpoint/directory_names.h"
#include "checkpoint/find.h"
#include "checkpoint/manifest.h"

namespace longhaul {

namespace fs = std::filesystem;

void require_new_target(const fs::path& path) {
  if (path.empty()) {
    throw RecipeError("--to needs the name of a directory");
  }
  if (fs::exists(fs::symlink_status(path))) {
    throw RecipeError("{} exists; remove it or give another directory", path.string());
  }
}

bool holds_checkpoints(const fs::path& path) {
  return fs::exists(path / kManifestName) || fs::is_directory(checkpoints_directory(path));
}

DirectoryKind directory_kind(const fs::path& path) {
  if (holds_checkpoints(path)) {
    return fs::exists(path / kManifestName) ? DirectoryKind::Checkpoint : DirectoryKind::Run;
  }
  if (fs::exists(path / "config.json")) {
    return DirectoryKind::Released;
  }
  throw CheckpointError("{} is neither a checkpoint (manifest.json), nor a run directory (checkpoints/), nor a released model (config.json)",
                        path.string());
}

fs::path checkpoint_at(const fs::path& path) {
  if (directory_kind(path) == DirectoryKind::Released) {
    throw CheckpointError("{} is a released model; wanted a checkpoint or a run directory", path.string());
  }
  if (directory_kind(path) == DirectoryKind::Checkpoint) {
    return path;
  }
  const std::optional<FoundCheckpoint> found = find_latest(path, [](const std::string&) {});
  if (!found) {
    throw CheckpointError("{} has no complete checkpoint", path.string());
  }
  return found->path;
}

}  // namespace longhaul
