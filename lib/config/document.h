// A parsed recipe with its overrides: what read() fills option structs from. Typical use:
//
//   const auto doc = config::Document::from_file("recipe.yaml", {"optimizer.learning_rate=1e-4", "stages.0.steps=5"});
//   config::Diagnostics diagnostics;
//   config::read(doc, recipe, diagnostics);
//   recipe.validate(diagnostics);                      // the owner's rules across keys
//   diagnostics.throw_if_any();
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostics.h"
#include "config/node.h"
#include "config/source_map.h"

namespace longhaul::config {

class Document {
 public:
  // Both throw RecipeError when there is nothing to read: no such file, broken YAML, an empty file, a root that is not
  // a map. Problems that leave the rest readable (a duplicate key, a wrong override) are kept and reported by read().
  // `overrides` are the arguments of --set, "dotted.key=value", applied in order; the value is YAML.
  [[nodiscard]] static Document from_file(const std::filesystem::path& path, const std::vector<std::string>& overrides = {});
  // `name` stands for the file in messages.
  [[nodiscard]] static Document from_string(std::string_view text, const std::vector<std::string>& overrides = {},
                                            std::string name = "recipe.yaml");

  [[nodiscard]] const Node& root() const noexcept { return root_; }
  // The node of a dotted key ("stages.1.optimizer"; "" is the root), or null.
  [[nodiscard]] const Node* find(std::string_view key) const;
  // Did the user write this key, in the file or by an override?
  [[nodiscard]] bool given(std::string_view key) const { return source_map_.contains(key); }
  [[nodiscard]] const SourceMap& source_map() const noexcept { return source_map_; }
  [[nodiscard]] std::span<const Problem> problems() const noexcept { return problems_; }

 private:
  Document() = default;
  void map_sources(const Node& node, const std::string& key);

  Node root_;
  SourceMap source_map_;
  std::vector<Problem> problems_;
};

}  // namespace longhaul::config
