// What an export will write: every tensor of the released layout and every one that passes through, each with where it
// comes from in the checkpoint, cut into shards. Strict: a tensor of the model that the checkpoint lacks, or has in another
// shape or type, and one that has no place in the released layout, are listed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "convert/released_layout.h"
#include "convert/shards.h"

namespace longhaul {

// What an export reads. `imported` may be absent: the checkpoint of an import, from which comes what passes through, and
// config.json, where the checkpoint itself is of a run and has neither.
struct ExportSources {
  CheckpointReader checkpoint;
  std::optional<CheckpointReader> imported;

  // Of tensors that pass through, and of documents.
  [[nodiscard]] CheckpointReader& passing() { return imported ? *imported : checkpoint; }
  [[nodiscard]] const CheckpointReader& passing() const { return imported ? *imported : checkpoint; }
};

struct ExportTensor {
  std::string stored;               // name in the checkpoint
  std::optional<ReleasedSpec> spec;  // nothing: passes through, byte by byte
  std::vector<SafetensorsDeclaration> declarations;
};

struct ExportPlan {
  ModelOptions model;
  ReleasedTypes types;
  std::vector<ExportTensor> tensors;
  std::vector<Shard> shards;
  bool has_passthrough = false;
  std::optional<std::string> imported_config;

  [[nodiscard]] std::vector<SafetensorsDeclaration> declarations_of(const Shard& shard) const;
};

// ConversionError with the list, or where `imported` is of another model; CheckpointError when the checkpoint has no usable recipe.
[[nodiscard]] ExportPlan make_export_plan(const ExportSources& sources, const ReleasedTypes& types, int64_t max_shard_bytes);

}  // namespace longhaul
