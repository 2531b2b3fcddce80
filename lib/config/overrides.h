// The command line's --set: changes one key of a parsed recipe before it is read, so that an override is checked exactly
// like a line of the file and reported as "--set optimizer.learning_rate=-1: ...".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostics.h"
#include "config/node.h"

namespace longhaul::config {

// What stands for the file in messages about an override: "--set a.b=1", shortened where the value is long.
[[nodiscard]] std::string override_name(std::string_view text);

// Applies "dotted.key=value". The value is YAML: a scalar, [a, b] or {a: 1}; nothing after '=' is null. Sections on the
// way are created; list entries are addressed by an index that exists. `source` is the override's number in the source map.
void apply_override(Node& root, std::string_view text, int32_t source, std::vector<Problem>& problems);

// The index that `text` spells, if the list has such an entry.
[[nodiscard]] std::optional<std::size_t> list_index(const Node& list, std::string_view text);

}  // namespace longhaul::config
