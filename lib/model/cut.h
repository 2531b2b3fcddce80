// Where a pipeline cuts the model. Stages own consecutive decoder layers; with Attention Residuals a cut falls on a block
// boundary, because there the stream is nothing but finished blocks. The payload of a cut is every source that later
// layers may read.
#pragma once

#include <cstdint>
#include <vector>

#include "model/options.h"

namespace longhaul {

// What one pipeline stage computes.
struct StageRange {
  int64_t first_layer = 0;  // 0-based
  int64_t last_layer = 0;   // one past the end
  bool has_embedding = false;
  bool has_head = false;

  friend bool operator==(const StageRange&, const StageRange&) = default;
};

// Layers in front of which the model may be cut, ascending, without 0.
[[nodiscard]] std::vector<int64_t> legal_cuts(const ModelOptions& model);

// Splits the model into `stages` ranges whose most expensive one costs least (floating-point operations of a token).
// Throws RecipeError with the legal cuts when the model has fewer pieces than stages.
[[nodiscard]] std::vector<StageRange> cut_stages(const ModelOptions& model, int64_t stages);
// The stages of the cuts that a recipe names. Throws RecipeError, listing the legal cuts, when one is not legal.
[[nodiscard]] std::vector<StageRange> cut_stages_at(const ModelOptions& model, const std::vector<int64_t>& cuts);

// Tensors [tokens, hidden] that cross the cut in front of `layer`: 1 + the finished blocks before the newest
// (the prefix is the newest); 1 without Attention Residuals.
[[nodiscard]] int64_t sources_before(const ModelOptions& model, int64_t layer);

}  // namespace longhaul
