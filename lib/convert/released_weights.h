// Reads the weights of a released model directory (config.json, model.safetensors or sharded files with an index) into a
// stage's parameters. Strict: every parameter must be filled completely, once; every tensor of the file must belong to
// the model.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "storage/safetensors.h"

namespace longhaul {

class ReleasedModel {
 public:
  // Opens the directory. ConversionError when a file is missing or damaged.
  explicit ReleasedModel(const std::filesystem::path& directory);

  [[nodiscard]] const ModelOptions& options() const noexcept { return options_; }
  // Fills `parameters` of the whole model (one stage, one expert rank). Throws ConversionError that lists missing, extra
  // and misshapen tensors.
  void load(const Parameters& parameters) const;
  // The selection bias of each decoder layer; empty for dense layers. Throws ConversionError when a mixture layer has none.
  [[nodiscard]] std::vector<std::vector<double>> selection_bias() const;

 private:
  ModelOptions options_;
  std::vector<SafetensorsFile> files_;
};

}  // namespace longhaul
