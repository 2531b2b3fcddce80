// What a directory holds: a checkpoint, a run with its checkpoints, or a released model.
#pragma once

#include <filesystem>
#include <string>

namespace longhaul {

enum class InspectFormat : uint8_t { Text, Json };

// Text gathers tensors whose names differ only in numbers in one line; JSON names every one. CheckpointError, ConversionError.
[[nodiscard]] std::string inspect(const std::filesystem::path& path, InspectFormat format);

}  // namespace longhaul
