// See document.h.
#include "config/document.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "base/error.h"
#include "config/overrides.h"
#include "config/parse.h"

namespace longhaul::config {

namespace {

// At most one byte more than a recipe may have, so that /dev/zero ends too. Pipes are read like files.
std::string read_text(const std::filesystem::path& path) {
  std::error_code status;
  if (std::filesystem::is_directory(path, status)) {
    throw RecipeError("{}: is a directory; give the path of a recipe file", path.string());
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw RecipeError("{}: cannot be opened: {}", path.string(), std::generic_category().message(errno));
  }
  std::string text(static_cast<std::size_t>(kMaxRecipeBytes) + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) {
    throw RecipeError("{}: cannot be read", path.string());
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace

Document Document::from_file(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  return from_string(read_text(path), overrides, path.string());
}

Document Document::from_string(std::string_view text, const std::vector<std::string>& overrides, std::string name) {
  Document out;
  const int32_t file = out.source_map_.add_source(name);
  ParsedText parsed = parse_yaml(text, file, name);
  if (!parsed.root) {
    throw RecipeError("{}", parsed.problems.front().text());
  }
  if (parsed.root->kind == Node::Kind::Null) {
    throw RecipeError("{}:1:1: the file holds no keys", name);
  }
  if (parsed.root->kind != Node::Kind::Map) {
    throw RecipeError("{}:{}:{}: the file must hold sections of keys ('key: value'), got {}", name, parsed.root->position.line,
                      parsed.root->position.column, describe_value(*parsed.root));
  }
  out.root_ = std::move(*parsed.root);
  out.problems_ = std::move(parsed.problems);
  for (const std::string& text_of_override : overrides) {
    const int32_t source = out.source_map_.add_source(override_name(text_of_override));
    apply_override(out.root_, text_of_override, source, out.problems_);
  }
  out.source_map_.set("", out.root_.position);
  out.map_sources(out.root_, "");
  return out;
}

const Node* Document::find(std::string_view key) const {
  const Node* node = &root_;
  while (node != nullptr && !key.empty()) {
    const std::string_view part = key.substr(0, key.find('.'));
    key.remove_prefix(std::min(part.size() + 1, key.size()));
    if (node->kind == Node::Kind::List) {
      const auto index = list_index(*node, part);
      node = index ? &node->entries[*index].value : nullptr;
    } else {
      node = node->find(part);
    }
  }
  return node;
}

void Document::map_sources(const Node& node, const std::string& key) {
  for (std::size_t i = 0; i < node.entries.size(); ++i) {
    const NodeEntry& entry = node.entries[i];
    const std::string child = join_key(key, node.kind == Node::Kind::List ? std::to_string(i) : entry.key);
    source_map_.set(child, entry.position);
    map_sources(entry.value, child);
  }
}

}  // namespace longhaul::config
