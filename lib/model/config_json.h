// Reads the architecture from a released config.json: Kimi K3 (its text_config) or Kimi Linear. Keys that say nothing about
// the architecture are passed over; what this model cannot be is refused.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "model/options.h"

namespace longhaul {

// Throws ConversionError naming the key when one is missing, of the wrong type, or asks for something that this
// architecture does not have (rotary positions, grouped routing, tied embeddings, …).
[[nodiscard]] ModelOptions model_options_from_config(const nlohmann::json& config);
[[nodiscard]] ModelOptions model_options_from_config_file(const std::filesystem::path& path);

}  // namespace longhaul
