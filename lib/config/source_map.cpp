// See source_map.h.
#include "config/source_map.h"

#include <algorithm>

#include "base/cast.h"

namespace longhaul::config {

std::string join_key(std::string_view parent, std::string_view child) {
  return parent.empty() ? std::string(child) : fmt::format("{}.{}", parent, child);
}

std::vector<std::string_view> split_key(std::string_view key) {
  std::vector<std::string_view> parts;
  for (std::size_t start = 0; !key.empty() && start <= key.size();) {
    const auto dot = std::min(key.find('.', start), key.size());
    parts.push_back(key.substr(start, dot - start));
    start = dot + 1;
  }
  return parts;
}

bool is_index(std::string_view part) {
  return !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
}

int32_t SourceMap::add_source(std::string name) {
  sources_.push_back(std::move(name));
  return narrow<int32_t>(sources_.size() - 1);
}

void SourceMap::set(std::string key, Position position) { positions_.insert_or_assign(std::move(key), position); }

bool SourceMap::contains(std::string_view key) const { return positions_.contains(key); }

Position SourceMap::nearest(std::string_view key) const {
  while (true) {
    if (const auto found = positions_.find(key); found != positions_.end()) {
      return found->second;
    }
    if (key.empty()) {
      return {};
    }
    const auto dot = key.rfind('.');
    key = dot == std::string_view::npos ? std::string_view{} : key.substr(0, dot);
  }
}

std::string SourceMap::source_name(const Position& position) const {
  const auto index = static_cast<std::size_t>(position.source);
  return index < sources_.size() ? sources_[index] : std::string{};
}

}  // namespace longhaul::config
