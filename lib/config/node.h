// The tree of a YAML document, with positions: what the reader reads and what dump writes. Our own tree rather than
// yaml-cpp's, because that one drops the quotes, keeps duplicate keys silently and shares nodes between documents.
// Scalars keep their text: only the declared type of a field decides what `8k`, `1e3` or `true` means.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/source_map.h"

namespace longhaul::config {

struct NodeEntry;

struct Node {
  enum class Kind {
    Null,
    Scalar,
    List,     // entries have empty keys
    Map,      // entries in the order of the file, keys unique
    Invalid,  // uses a feature of YAML that recipes do not have; `text` says which. Reported once, then passed over.
  };
  enum class Style { Plain, Quoted };

  Kind kind = Kind::Null;
  Style style = Style::Plain;
  std::string text;
  Position position;
  std::vector<NodeEntry> entries;

  [[nodiscard]] static Node scalar(std::string text, Style style);

  // The value of a key of a map, or null.
  [[nodiscard]] const Node* find(std::string_view key) const;
  [[nodiscard]] Node* find(std::string_view key);
};

struct NodeEntry {
  std::string key;
  Position position;  // of the key; of the value in a list
  Node value;
};

// What a message says about a value: `fast`, `"5"`, `a list`, `null`. Long texts are cut, control characters escaped.
[[nodiscard]] std::string describe_value(const Node& node);
// Quotes and escapes a text so that YAML reads the same text again.
[[nodiscard]] std::string quote(std::string_view text);

// YAML text of a tree: sections as blocks, lists of scalars and empty things in one line. Ends with a line break.
[[nodiscard]] std::string emit(const Node& node);
// The same in one line, for messages and tables: `[1, 2]`, `{path: a, weight: 1.0}`.
[[nodiscard]] std::string emit_inline(const Node& node);

}  // namespace longhaul::config
