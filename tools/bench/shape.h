// Sizes of a measured operation, by letter: "T=8192,H=96,D=128".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longhaul::bench {

class Sizes {
 public:
  // The letters an operation knows, with their defaults.
  Sizes(std::initializer_list<std::pair<std::string, int64_t>> defaults) : values_(defaults) {}

  // Replaces what `text` names. RecipeError for an unknown letter, a size below 1, or a text of another form.
  void set(std::string_view text);
  // The letter must be one of the operation's.
  [[nodiscard]] int64_t operator[](std::string_view letter) const;
  // "T=8192,H=96,D=128"
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::pair<std::string, int64_t>> values_;
};

}  // namespace longhaul::bench
