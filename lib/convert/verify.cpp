// See verify.h.
#include "convert/verify.h"

#include <vector>

#include "checkpoint/directory_names.h"
#include "checkpoint/load.h"
#include "convert/import_plan.h"
#include "convert/targets.h"

namespace longhaul {

namespace fs = std::filesystem;

namespace {

std::string verify_checkpoint_at(HostComm& comm, const fs::path& path) {
  const CheckpointReader reader = open_checkpoint(comm, path);
  int64_t bytes = 0;
  for (const auto& [name, file] : reader.manifest().files) {
    bytes += file.bytes;
  }
  return fmt::format("{}: {} files, {} tensors, {} bytes, all as saved\n", path.string(), reader.manifest().files.size(), reader.manifest().tensors.size(), bytes);
}

std::string verify_run(HostComm& comm, const fs::path& path) {
  std::string good;
  std::vector<std::string> bad;
  for (const std::string& name : names_in(checkpoints_directory(path))) {
    if (!parse_step_name(name)) {
      continue;
    }
    try {
      good += verify_checkpoint_at(comm, checkpoints_directory(path) / name);
    } catch (const CheckpointError& error) {
      bad.emplace_back(error.what());
    }
  }
  if (!bad.empty()) {
    throw CheckpointError("{}", fmt::join(bad, "\n"));
  }
  if (good.empty()) {
    throw CheckpointError("{} has no checkpoint", path.string());
  }
  return good;
}

std::string verify_released(const fs::path& path) {
  const ReleasedDirectory directory(path);
  const ImportPlan plan(directory);
  return fmt::format("{}: {} files, {} tensors, exactly the model of its config.json; the format has no hashes\n", path.string(), directory.num_files(),
                     directory.tensors().size());
}

}  // namespace

std::string verify(HostComm& comm, const fs::path& path) {
  switch (directory_kind(path)) {
    case DirectoryKind::Checkpoint: return verify_checkpoint_at(comm, path);
    case DirectoryKind::Run: return verify_run(comm, path);
    case DirectoryKind::Released: return verify_released(path);
  }
  throw InternalError("a directory of no kind");
}

}  // namespace longhaul
