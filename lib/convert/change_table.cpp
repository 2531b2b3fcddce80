// See change_table.h.
#include "convert/change_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace longhaul {

std::string name_pattern(std::string_view name) {
  std::string pattern;
  while (true) {
    const size_t dot = name.find('.');
    const std::string_view word = name.substr(0, dot);
    const bool is_number = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    pattern += is_number ? "*" : std::string(word);
    if (dot == std::string_view::npos) {
      return pattern;
    }
    pattern += '.';
    name.remove_prefix(dot + 1);
  }
}

void ChangeTable::add(std::string_view name, std::string_view from, std::string_view to, int64_t tensors) {
  total_ += tensors;
  if (from != to) {
    changed_ += tensors;
    rows_[{std::string(from), std::string(to), name_pattern(name)}] += tensors;
  }
}

std::string ChangeTable::text() const {
  std::string out;
  for (const auto& [row, count] : rows_) {
    const auto& [from, to, pattern] = row;
    out += fmt::format("  {:>5} -> {:<5} {:>7} x {}\n", from, to, count, pattern);
  }
  return out;
}

}  // namespace longhaul
