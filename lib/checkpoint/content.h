// What a checkpoint holds beside its tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/piece.h"

namespace longhaul {

// Checkpoints at the end of a stage are never removed by the limit on their number.
enum class CheckpointRole : uint8_t { Periodic, StageFinal };

struct CheckpointInfo {
  int64_t step = 0;    // completed optimizer steps
  std::string stage;   // name of the stage that the step belongs to
  int64_t tokens = 0;  // seen since the start of the run
  CheckpointRole role = CheckpointRole::Periodic;
  std::string recipe;           // the resolved recipe, YAML
  std::string versions = "{}";  // JSON object: of Longhaul and its libraries
  std::string layout = "{}";    // JSON object: the degrees of parallelism
};

// Name to JSON text, whole documents: the data cursor, counters. Numbers come back exactly; the order of keys does not.
using JsonDocuments = std::map<std::string, std::string>;

// One rank's share. Nothing here owns tensor memory.
struct CheckpointContent {
  CheckpointInfo info;           // rank 0's is written
  std::vector<Piece> pieces;     // owned by this rank; what several ranks hold alike is listed by one of them
  JsonDocuments documents;       // rank 0's are written
  JsonDocuments rank_documents;  // of this rank
};

}  // namespace longhaul
