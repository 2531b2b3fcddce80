// Gives a finished directory its name, and keeps the directory of checkpoints in order: removes what is old, recovers what
// an interrupted replacement left.
#pragma once

#include <filesystem>
#include <functional>

#include "checkpoint/hooks.h"

namespace longhaul {

// How a directory takes the name of one that exists. Exchange swaps both names in one system call (Linux, local file
// systems); TwoRenames moves the old one aside first, and a kill in between leaves it under its ".replaced" name, where
// find_latest and the next save look for it.
enum class Replacement : uint8_t { Exchange, TwoRenames };

// `staging` becomes `target`; what `target` named before is removed. At no moment is neither usable. Falls back to
// TwoRenames where the file system cannot exchange.
void publish_directory(const std::filesystem::path& staging, const std::filesystem::path& target, Replacement replacement,
                       const std::function<void()>& between_renames);

// Removes a directory so that a kill in the middle never leaves a part of it under its own name.
void remove_checkpoint(const std::filesystem::path& directory);

// Undoes or completes what killed saves and removals left in this directory, which no other save may be using. What it did
// goes to `warn`.
void recover_directory(const std::filesystem::path& checkpoints, const WarningSink& warn);

// Keeps the newest `keep` periodic checkpoints up to `current`, every one that ended a stage, and those of every
// `major_every` steps. What is incomplete, in progress, newer than `current` or not readable is neither counted nor removed.
struct RetentionRequest {
  std::filesystem::path checkpoints;
  int64_t current = 0;      // the step just saved, never removed
  int64_t keep = 0;
  int64_t major_every = 0;  // checkpoints of steps that this divides are kept for good; 0: none
};
void apply_retention(const RetentionRequest& request, const WarningSink& warn);

}  // namespace longhaul
