// See schema.h.
#include "config/schema.h"

#include <fmt/format.h>

namespace longhaul::config {

namespace {

std::string escape_cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') {
      out += '\\';
    }
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

std::string schema_key(std::string_view key) {
  std::string out;
  for (const auto part : split_key(key)) {
    out = join_key(out, is_index(part) ? "N" : part);
  }
  return out;
}

std::string markdown_table(const Schema& schema) {
  std::string out = "| key | type | default | meaning |\n|---|---|---|---|\n";
  for (const FieldInfo& field : schema) {
    if (field.origin == FieldInfo::Origin::InOverlay) {
      continue;
    }
    std::string type = field.type;
    for (const std::string& rule : field.rules) {
      type += ", " + rule;
    }
    std::string standard;
    if (field.is_required) {
      standard = "required";
    } else if (!field.default_value.empty()) {
      standard = fmt::format("`{}`", field.default_value);
    }
    out += fmt::format("| `{}` | {} | {} | {} |\n", field.key, escape_cell(type), escape_cell(standard),
                       escape_cell(field.help));
  }
  return out;
}

}  // namespace longhaul::config
