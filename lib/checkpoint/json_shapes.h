// Shapes, types and stored pieces as JSON, for the manifest and for what ranks tell each other during a save.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/manifest.h"

namespace longhaul {

[[nodiscard]] nlohmann::ordered_json shape_to_json(const Shape& shape);
[[nodiscard]] Shape shape_from_json(const nlohmann::json& value);
[[nodiscard]] DType dtype_from_text(const std::string& text);

[[nodiscard]] nlohmann::ordered_json piece_to_json(const StoredPiece& piece);
[[nodiscard]] StoredPiece piece_from_json(const nlohmann::json& value);

[[nodiscard]] nlohmann::ordered_json documents_to_json(const JsonDocuments& documents);
[[nodiscard]] JsonDocuments documents_from_json(const nlohmann::json& value);

}  // namespace longhaul
