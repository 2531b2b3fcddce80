// The steps of which a save consists, for save.cpp, which takes them one after the other, and async_save.cpp, which takes
// some of them on a thread of their own. None of them communicates; which rank takes which is written in save.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/content.h"
#include "checkpoint/hooks.h"
#include "checkpoint/save.h"

namespace longhaul {

struct SavePaths {
  std::filesystem::path target;
  std::filesystem::path staging;  // .NAME.inprogress beside it
};
[[nodiscard]] SavePaths save_paths(const std::filesystem::path& target);

// In RUN/checkpoints: makes it, and clears away what interrupted saves left.
void prepare_checkpoints(const std::filesystem::path& checkpoints, const WarningSink& warn);
// Makes the staging directory, empty.
void prepare_staging(const SavePaths& paths, const WarningSink& warn);
// Index, manifest, and the rename that makes the checkpoint; returns the bytes of all files.
int64_t complete_checkpoint(const SavePaths& paths, const CheckpointContent& content, std::span<const std::string> reports,
                            Replacement replacement, SaveProgress& progress);
// `latest` and retention.
struct TidyRequest {
  std::filesystem::path checkpoints;
  int64_t step = 0;
  int64_t keep = 0;
  int64_t major_every = 0;
};
void tidy_checkpoints(const TidyRequest& request, const SaveProgress& progress, const WarningSink& warn);

void remove_quietly(const std::filesystem::path& directory) noexcept;

}  // namespace longhaul
