// A checkpoint becomes a released model directory: config.json, safetensors shards, and the index built from what was
// written. Tensors stream in blocks of 8 MiB. Files are written into .NAME.inprogress beside the target, which takes its
// name when all is on the disk: an interrupted export leaves nothing that looks complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "comm/host_comm.h"
#include "convert/change_table.h"
#include "convert/released_layout.h"

namespace longhaul {

struct ExportRequest {
  std::filesystem::path from;  // a checkpoint, or a run directory (its newest one)
  std::filesystem::path to;    // must not exist
  // A checkpoint that an import made; empty: none. What passes through (a vision tower) and config.json come from it: `from` is of
  // a run that started from there.
  std::filesystem::path imported = {};
  ReleasedTypes types;
  int64_t max_shard_bytes = 5'000'000'000;
  // Called after every block that was written; a test stops an export in it.
  std::function<void(int64_t bytes)> fault = {};
};

struct ExportReport {
  ReleasedFormat format = ReleasedFormat::KimiK3;
  std::filesystem::path checkpoint;  // that was read
  ChangeTable changes;
  int64_t tensors = 0;  // in the files
  int64_t shards = 0;
  int64_t bytes = 0;    // of data
};

// The ranks share the shards. CheckpointError when the checkpoint is damaged (all of it is verified first); ConversionError
// when it does not hold exactly the model of its recipe, or the weights cannot be written in the wanted type; RecipeError when
// `to` exists. Collective.
[[nodiscard]] ExportReport export_model(HostComm& comm, const ExportRequest& request);

}  // namespace longhaul
