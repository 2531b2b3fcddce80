// Is a directory as it was written?
#pragma once

#include <filesystem>
#include <string>

#include "comm/host_comm.h"

namespace longhaul {

// A checkpoint: every file's hash. A run directory: all its checkpoints. A released directory: headers, index, and that it
// holds exactly the model of its config.json (such files have no hashes). Returns what was found right, one line each.
// CheckpointError naming the damaged tensors and files; ConversionError for a released directory. Collective.
[[nodiscard]] std::string verify(HostComm& comm, const std::filesystem::path& path);

}  // namespace longhaul
