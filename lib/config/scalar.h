// Scalars between text and C++: strict where YAML is lax. Integers are decimal, may carry `_` between digits and an
// exponent, and must be exact (`1e3`, `1.0e6`, `1_000`; not `1.5`, `0x10`, `007`). Numbers are finite: an option that
// knows "no limit" is a std::optional. Booleans are only `true` and `false`, so that `no` and `off` stay words.
// read_scalar() returns an empty string after setting `out`, or else what the value must be: "an integer".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/enum_names.h"
#include "config/node.h"

namespace longhaul::config {

[[nodiscard]] std::string read_scalar(const Node& node, bool& out);
[[nodiscard]] std::string read_scalar(const Node& node, int& out);
[[nodiscard]] std::string read_scalar(const Node& node, int64_t& out);
[[nodiscard]] std::string read_scalar(const Node& node, float& out);
[[nodiscard]] std::string read_scalar(const Node& node, double& out);
// Any unquoted text but `true`, `false` and null, or quoted text; the text is taken as it stands (`8k`, `2024`).
[[nodiscard]] std::string read_scalar(const Node& node, std::string& out);
template <NamedEnum E>
[[nodiscard]] std::string read_scalar(const Node& node, E& out) {
  if (node.kind == Node::Kind::Scalar) {
    if (const auto value = enum_value<E>(node.text)) {
      out = *value;
      return {};
    }
  }
  return "one of " + enum_choices<E>();
}

// Canonical scalars: read_scalar(write_scalar(x)) == x, bit for bit.
[[nodiscard]] Node write_scalar(bool value);
[[nodiscard]] Node write_scalar(int value);
[[nodiscard]] Node write_scalar(int64_t value);
[[nodiscard]] Node write_scalar(float value);
[[nodiscard]] Node write_scalar(double value);
[[nodiscard]] Node write_scalar(const std::string& value);
template <NamedEnum E>
[[nodiscard]] Node write_scalar(E value) {
  return write_scalar(std::string(enum_name(value)));
}

// How messages show a value: `-1` rather than `-1.0`, texts in quotes.
template <class T>
[[nodiscard]] std::string show_scalar(const T& value) {
  return describe_value(write_scalar(value));
}
[[nodiscard]] std::string show_scalar(float value);
[[nodiscard]] std::string show_scalar(double value);
[[nodiscard]] std::string show_scalar(const std::string& value);

// Can the text stand in YAML without quotes and be read as text by every YAML reader?
[[nodiscard]] bool is_safe_plain(std::string_view text);

}  // namespace longhaul::config
