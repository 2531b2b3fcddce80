// Saves a checkpoint so that a kill at any byte leaves the previous one usable:
//
//   1. rank 0 clears away what interrupted saves left, and makes .step_XXXXXXXX.inprogress
//   2. every rank writes its rank file there, hashes it on the way, and brings it to the disk
//   3. rank 0 checks that all pieces cover every tensor exactly once, writes index.h5, and manifest.json last
//   4. rank 0 renames the directory to step_XXXXXXXX, then updates `latest`, then removes old checkpoints
//
// After 2, 3 and 4 all ranks agree: when one fails, all throw the same error and the unfinished directory is removed.
// Nothing is read from the tensors after step 2. For a save while training goes on see async_save.h.
#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/checkpoint_options.h"
#include "checkpoint/content.h"
#include "checkpoint/hooks.h"
#include "checkpoint/publish.h"
#include "comm/host_comm.h"

namespace longhaul {

struct SaveOptions {
  int64_t keep = 3;         // see apply_retention
  int64_t major_every = 0;  // see apply_retention
  Compression compression = Compression::None;
  DeviceTransfer copy;  // how tensors on a device reach the host; empty: copy_between
  WarningSink warn;    // rank 0; may be empty
  FaultHook fault;     // may be empty
  Replacement replacement = Replacement::Exchange;
};

struct SavedCheckpoint {
  std::filesystem::path path;
  int64_t bytes = 0;  // of all files
};

// Into RUN/checkpoints/step_XXXXXXXX, replacing one of the same step. Collective. CheckpointError with the same message on
// all ranks: disk full, not writable, pieces that overlap or leave gaps.
SavedCheckpoint save_checkpoint(HostComm& comm, const std::filesystem::path& run_directory, const CheckpointContent& content,
                                const SaveOptions& options = {});

// A single checkpoint at exactly `target`, outside a run: steps 1 to 3 and the rename. Collective.
SavedCheckpoint write_checkpoint(HostComm& comm, const std::filesystem::path& target, const CheckpointContent& content,
                                 const SaveOptions& options = {});

}  // namespace longhaul
