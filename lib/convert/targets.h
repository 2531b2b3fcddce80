// The directories that conversions write and read, named by a user.
#pragma once

#include <cstdint>
#include <filesystem>

namespace longhaul {

// RecipeError (exit 2) when there is something at `path`: a conversion never replaces.
void require_new_target(const std::filesystem::path& path);

enum class DirectoryKind : uint8_t { Checkpoint, Run, Released };
// What a directory holds, by its files. CheckpointError when it is none of them.
[[nodiscard]] DirectoryKind directory_kind(const std::filesystem::path& path);

[[nodiscard]] bool holds_checkpoints(const std::filesystem::path& path);

// The checkpoint itself, or the newest complete one of a run directory. CheckpointError when there is none.
[[nodiscard]] std::filesystem::path checkpoint_at(const std::filesystem::path& path);

}  // namespace longhaul
