// A released model directory becomes a checkpoint that training can start from (`train --init-from`): weights in f32,
// step 0, and a recipe with the section `model`. Tensors stream through a buffer of 8 MiB; a model need not fit into memory.
//
// Tensors of the vision tower pass through: they are kept bit by bit under passthrough/ and come back on export, as does
// what config.json says beyond the architecture.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "comm/host_comm.h"
#include "convert/change_table.h"

namespace longhaul {

// JSON documents inside an imported checkpoint.
inline constexpr const char* kConfigDocument = "released_config";            // config.json as it came
inline constexpr const char* kPassthroughDocument = "released_passthrough";  // {name: {dtype, shape}} of tensors kept as plain bytes

struct ImportRequest {
  std::filesystem::path from;
  std::filesystem::path to;      // must not exist
  std::string versions = "{}";   // of this program and its libraries, JSON
};

struct ImportReport {
  ChangeTable changes;
  int64_t parameters = 0;
  int64_t passthrough = 0;  // tensors
  int64_t files = 0;        // read
  int64_t bytes = 0;        // written
};

// The ranks share the tensors. ConversionError when the directory does not hold exactly this model; RecipeError when `to`
// exists; CheckpointError when it cannot be written. In each case nothing is left at `to`. Collective.
[[nodiscard]] ImportReport import_model(HostComm& comm, const ImportRequest& request);

}  // namespace longhaul
