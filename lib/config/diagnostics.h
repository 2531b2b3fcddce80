// Collects every problem of a recipe, so that a user sees all of them after one run, and throws them as one RecipeError:
//
//   recipe.yaml:14:7: optimizer.learning_rate: must be > 0, got -1
//   --set stages.0.steps=x: stages.0.steps: must be an integer, got x
//
// The reader fills it; owners add rules that span several keys afterwards: diagnostics.add("parallel.expert", "must ...").
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/source_map.h"

namespace longhaul::config {

struct Problem {
  std::string file;
  int64_t line = 0;    // from 1; 0 where a position makes no sense (an override)
  int64_t column = 0;  // from 1, in characters
  std::string key;     // dotted; empty when the problem is not about one key
  std::string message;

  // "file:line:column: key: message", without the parts that are absent; always one line.
  [[nodiscard]] std::string text() const;
};

class Diagnostics {
 public:
  // Positions of keys come from this map from now on. read() calls it.
  void attach(SourceMap map);

  // A problem at `key`, or at its nearest parent that was written.
  void add(std::string_view key, std::string message);
  template <class First, class... Rest>
  void add(std::string_view key, fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest) {
    add(key, fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...));
  }
  // Beyond this number problems are only counted: nobody reads more, and a wrong file must not fill the memory.
  static constexpr int64_t kMaxKept = 100;

  // The same problem twice is kept once.
  void add(Problem problem);

  [[nodiscard]] bool empty() const noexcept { return problems_.empty(); }
  // Whether a kept problem is at `key` or below it: rules over several keys would only repeat it.
  [[nodiscard]] bool has(std::string_view key) const;
  [[nodiscard]] int64_t count() const noexcept { return count_; }
  [[nodiscard]] std::span<const Problem> problems() const noexcept { return problems_; }
  // One problem a line, in the order of the file; overrides come last.
  [[nodiscard]] std::string text() const;
  void throw_if_any() const;

 private:
  SourceMap map_;
  std::vector<Problem> problems_;
  std::set<std::string, std::less<>> seen_;
  int64_t count_ = 0;
};

}  // namespace longhaul::config
