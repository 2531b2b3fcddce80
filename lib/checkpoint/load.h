// Fills this rank's tensors from a checkpoint, strictly: what the run needs and what the checkpoint holds must agree.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/find.h"
#include "checkpoint/piece.h"
#include "checkpoint/reader.h"
#include "comm/host_comm.h"

namespace longhaul {

// find_latest on rank 0, its answer on all; `skipped` and directories are looked at on rank 0 only. Collective.
[[nodiscard]] std::optional<FoundCheckpoint> find_latest_together(HostComm& comm, const std::filesystem::path& run_directory,
                                                                  const std::function<void(const std::string&)>& skipped,
                                                                  const RequiredDocuments& required = {});

// Opens the checkpoint on every rank and verifies it. Collective.
[[nodiscard]] CheckpointReader open_checkpoint(HostComm& comm, const std::filesystem::path& directory, const DeviceTransfer& copy = {});

// Compares the content of every file with its hash; the ranks share the files among them. All ranks throw the same
// CheckpointError, naming the damaged tensors. Collective; with one rank it is an offline check.
void verify_checkpoint(HostComm& comm, const CheckpointReader& reader);

struct LoadRequest {
  // Blocks of this rank; several ranks may ask for the same. data is the destination.
  std::vector<Piece> pieces;
  // Names that begin with one of these must be asked for by some rank; others are left alone. {""}: all.
  std::vector<std::string> prefixes = {""};
};
// Names, types and shapes are compared first, over all ranks; a CheckpointError lists what is missing, left over or
// different. Nothing is written to the tensors before all ranks agree. Collective.
void load_tensors(HostComm& comm, CheckpointReader& reader, const LoadRequest& request);

}  // namespace longhaul
