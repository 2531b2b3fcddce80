// Helpers that look at raw text: positions, UTF-8, open quotes, and what a syntax error most likely is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/source_map.h"

namespace longhaul::config {

// Turns byte offsets into lines and columns (in characters). Fast when offsets come in ascending order.
class Locator {
 public:
  Locator(std::string_view text, int32_t source) : text_(text) { last_ = {.source = source, .line = 1, .column = 1}; }
  [[nodiscard]] Position at(int64_t byte);

 private:
  std::string_view text_;
  int64_t byte_ = 0;  // where last_ is
  Position last_;
};

// The text, or its first bytes and "..." when it is longer; never cut inside a character.
[[nodiscard]] std::string shorten(std::string_view text, int64_t max_bytes);

struct SyntaxError {
  int64_t byte = 0;
  std::string reason;
};

// The first thing that is not text: too many bytes, a sequence that is not UTF-8, a control character.
[[nodiscard]] std::optional<SyntaxError> find_bad_text(std::string_view text);

// True unless a quote opens at `byte` and the text ends before it is closed. yaml-cpp 0.7 takes the rest of the file.
[[nodiscard]] bool quote_is_closed(std::string_view text, int64_t byte);

// A reason in the words of a recipe for an error of yaml-cpp at `byte`, and the place to show.
[[nodiscard]] SyntaxError explain_syntax_error(std::string_view text, int64_t byte, std::string_view reason);

}  // namespace longhaul::config
