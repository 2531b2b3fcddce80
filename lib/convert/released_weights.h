// The weights of a model for running it on one rank: from a released directory (config.json with safetensors) or from a
// checkpoint. Strict: every parameter must be filled completely, once; every tensor must belong to the model.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "convert/tensor_source.h"
#include "model/parameters.h"
#include "storage/safetensors.h"

namespace longhaul {

class ReleasedModel {
 public:
  // ConversionError when a released directory is missing, damaged or holds another model than its config.json says;
  // CheckpointError when a checkpoint is not usable.
  explicit ReleasedModel(const std::filesystem::path& directory);

  [[nodiscard]] const ModelOptions& options() const noexcept { return options_; }
  // Fills the masters of `parameters` (f32 or f64, on any device) of the whole model (one stage, one expert rank);
  // Parameters::publish is for the caller. Throws ConversionError that lists missing and misshapen tensors.
  void load(const Parameters& parameters) const;
  // The selection bias of each decoder layer; empty for dense layers. Throws ConversionError when a mixture layer has none.
  [[nodiscard]] std::vector<std::vector<double>> selection_bias() const;

 private:
  std::unique_ptr<TensorSource> source_;
  ModelOptions options_;
};

}  // namespace longhaul
