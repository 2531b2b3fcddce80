// config.json of a released model, written from our options: all keys of the released Kimi K3 and Kimi Linear files that
// describe the architecture, and what an imported config.json said beyond it.
#pragma once

#include <optional>
#include <string>

#include "convert/released_layout.h"

namespace longhaul {

struct ReleasedConfigRequest {
  ModelOptions model;
  ReleasedTypes types;
  std::optional<std::string> imported;  // config.json that the model came with
  bool has_passthrough = false;         // are there tensors of a vision tower?
};

// The text of config.json. Keys of the architecture, of types and of quantisation are ours; all others come from `imported`
// where that is of the same model type. model_options_from_config of the text gives `model` again.
[[nodiscard]] std::string released_config(const ReleasedConfigRequest& request);

}  // namespace longhaul
