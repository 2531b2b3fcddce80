// Text to tree. yaml-cpp's parser finds the structure; what it lets pass silently is refused here with a position:
// unterminated quotes, duplicate keys, a second document after the first, anchors, merge keys, tags, keys that are not
// words, text that is not UTF-8, extreme depth and size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostics.h"
#include "config/node.h"

namespace longhaul::config {

inline constexpr int64_t kMaxRecipeBytes = int64_t{1} << 20;
inline constexpr int64_t kMaxRecipeDepth = 64;

struct ParsedText {
  std::optional<Node> root;       // nothing when the text could not be parsed at all; Null when it holds no value
  std::vector<Problem> problems;  // of the text; keys are relative to the root
};

// Positions get the source number `source`; problems get `source_name` as their file.
[[nodiscard]] ParsedText parse_yaml(std::string_view text, int32_t source, std::string_view source_name);

}  // namespace longhaul::config
