// Scan results as a table and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/decay_scan/checkpoint_problems.h"
#include "tools/decay_scan/scan.h"

namespace longhaul::decay {

[[nodiscard]] std::string head_text();
[[nodiscard]] std::string row_text(const ScanRow& row);
[[nodiscard]] nlohmann::ordered_json to_json(const ScanRow& row);

// A setting that the backend has no kernels for.
[[nodiscard]] std::string not_offered_text(const Setting& setting);
[[nodiscard]] nlohmann::ordered_json not_offered_json(const Setting& setting);

[[nodiscard]] std::string layer_head_text();
[[nodiscard]] std::string text_of(const LayerGates& layer);
[[nodiscard]] nlohmann::ordered_json to_json(const LayerGates& layer);

[[nodiscard]] std::string first_unsafe_head_text();
[[nodiscard]] std::string text_of(const FirstUnsafe& found);
[[nodiscard]] nlohmann::ordered_json to_json(const FirstUnsafe& found);

}  // namespace longhaul::decay
