// Where every key of a recipe was written. Kept after reading, so that a rule checked much later (a layer count against
// the number of pipeline stages) can still point at the line which is wrong.
// Keys are dotted; list entries are numbers: "stages.1.steps". The empty key is the document itself.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::config {

// A place in one of the sources of a document: source 0 is the file, the others are overrides of the command line.
// Lines and columns count from 1, columns in characters; line 0 means "the source as a whole" (an override).
struct Position {
  int32_t source = 0;
  int32_t line = 0;
  int32_t column = 0;
};

[[nodiscard]] std::string join_key(std::string_view parent, std::string_view child);
// "a.b" -> {"a", "b"}; "" -> {}; empty parts are kept.
[[nodiscard]] std::vector<std::string_view> split_key(std::string_view key);
// Is the part an index of a list, that is, made of digits?
[[nodiscard]] bool is_index(std::string_view part);

class SourceMap {
 public:
  // Returns the number of the new source, for Position::source.
  int32_t add_source(std::string name);
  void set(std::string key, Position position);

  // Was the key written by the user (in the file or by an override)?
  [[nodiscard]] bool contains(std::string_view key) const;
  // The position of the key, or of its nearest parent that was written.
  [[nodiscard]] Position nearest(std::string_view key) const;
  // "recipe.yaml", or "--set a.b=1"; empty when the map has no sources.
  [[nodiscard]] std::string source_name(const Position& position) const;

 private:
  std::vector<std::string> sources_;
  std::map<std::string, Position, std::less<>> positions_;
};

}  // namespace longhaul::config
