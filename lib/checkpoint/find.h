// Which checkpoint to resume from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace longhaul {

// Why the directory is not a complete checkpoint; empty when it is. Reads the manifest and compares the sizes of the
// files, not their content; loading does that. `required_documents` must be there too, the rank documents on all ranks.
struct RequiredDocuments {
  std::vector<std::string> shared;
  std::vector<std::string> of_every_rank;
};
[[nodiscard]] std::string incomplete_reason(const std::filesystem::path& directory, const RequiredDocuments& required = {});
// The same for a manifest that was read already.
[[nodiscard]] std::string incomplete_reason(const std::filesystem::path& directory, const Manifest& manifest,
                                            const RequiredDocuments& required = {});

struct FoundCheckpoint {
  int64_t step = 0;
  std::filesystem::path path;
};
// The newest complete checkpoint of a run directory; nothing when there is none. The directory itself is the truth: the
// file `latest` may be older by one save that was interrupted at its very end. Each newer one that was passed over is
// told: "skipped incomplete step_00000020: it has no manifest.json". On one rank.
[[nodiscard]] std::optional<FoundCheckpoint> find_latest(const std::filesystem::path& run_directory,
                                                         const std::function<void(const std::string&)>& skipped,
                                                         const RequiredDocuments& required = {});

}  // namespace longhaul
