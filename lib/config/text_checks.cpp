// See text_checks.h.
#include "config/text_checks.h"

#include <fmt/format.h>
#include <yaml-cpp/exceptions.h>

#include <algorithm>
#include <array>
#include <utility>

#include "config/parse.h"

namespace longhaul::config {

namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; }

// The length of the valid UTF-8 sequence at `byte`, or 0 (overlong forms, surrogates and values above U+10FFFF included).
int64_t sequence_length(std::string_view text, int64_t byte) {
  const auto value = [&](int64_t i) {
    return i < static_cast<int64_t>(text.size()) ? static_cast<unsigned char>(text[static_cast<std::size_t>(i)]) : 0U;
  };
  const auto continues = [&](int64_t i) { return (value(i) & 0xc0U) == 0x80U; };
  const unsigned first = value(byte);
  const unsigned second = value(byte + 1);
  if (first < 0x80) {
    return 1;
  }
  if (first >= 0xc2 && first <= 0xdf) {
    return continues(byte + 1) ? 2 : 0;
  }
  if (first >= 0xe0 && first <= 0xef) {
    const bool good = (first != 0xe0 || second >= 0xa0) && (first != 0xed || second < 0xa0);
    return good && continues(byte + 1) && continues(byte + 2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool good = (first != 0xf0 || second >= 0x90) && (first != 0xf4 || second < 0x90);
    return good && continues(byte + 1) && continues(byte + 2) && continues(byte + 3) ? 4 : 0;
  }
  return 0;
}

// The byte of the first tab in the indentation of the line that holds `byte`, or -1.
int64_t find_tab_indent(std::string_view text, int64_t byte) {
  auto start = static_cast<std::size_t>(std::clamp<int64_t>(byte, 0, static_cast<int64_t>(text.size())));
  while (start > 0 && text[start - 1] != '\n') {
    --start;
  }
  const std::string_view line = text.substr(start);
  const auto content = std::min(line.find_first_not_of(" \t"), line.size());
  const auto tab = line.find('\t');
  return tab < content ? static_cast<int64_t>(start + tab) : -1;
}

}  // namespace

Position Locator::at(int64_t byte) {
  byte = std::clamp<int64_t>(byte, 0, static_cast<int64_t>(text_.size()));
  if (byte < byte_) {
    byte_ = 0;
    last_.line = 1;
    last_.column = 1;
  }
  for (; byte_ < byte; ++byte_) {
    const char c = text_[static_cast<std::size_t>(byte_)];
    if (c == '\n') {
      ++last_.line;
      last_.column = 1;
    } else if (!is_continuation(c)) {
      ++last_.column;
    }
  }
  return last_;
}

std::string shorten(std::string_view text, int64_t max_bytes) {
  auto cut = static_cast<std::size_t>(max_bytes);
  if (text.size() <= cut) {
    return std::string(text);
  }
  while (cut > 0 && is_continuation(text[cut])) {
    --cut;
  }
  return std::string(text.substr(0, cut)) + "...";
}

std::optional<SyntaxError> find_bad_text(std::string_view text) {
  if (static_cast<int64_t>(text.size()) > kMaxRecipeBytes) {
    return SyntaxError{0, fmt::format("the file is larger than {} MiB, which no recipe is", kMaxRecipeBytes >> 20)};
  }
  for (int64_t byte = 0; byte < static_cast<int64_t>(text.size());) {
    const auto c = static_cast<unsigned char>(text[static_cast<std::size_t>(byte)]);
    if (c == 0x7f || (c < 0x20 && c != '\n' && c != '\r' && c != '\t')) {
      return SyntaxError{byte, fmt::format("the control character 0x{:02x} is not allowed; a recipe is UTF-8 text", c)};
    }
    const int64_t length = sequence_length(text, byte);
    if (length == 0) {
      return SyntaxError{byte, fmt::format("the byte 0x{:02x} is not UTF-8; save the recipe as UTF-8 text", c)};
    }
    byte += length;
  }
  return std::nullopt;
}

bool quote_is_closed(std::string_view text, int64_t byte) {
  if (byte < 0 || byte >= static_cast<int64_t>(text.size())) {
    return true;
  }
  const char quote = text[static_cast<std::size_t>(byte)];
  if (quote != '"' && quote != '\'') {
    return true;  // a block scalar
  }
  for (auto i = static_cast<std::size_t>(byte) + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      const bool doubled = quote == '\'' && i + 1 < text.size() && text[i + 1] == '\'';  // '' stands for '
      if (!doubled) {
        return true;
      }
      ++i;
    }
  }
  return false;
}

SyntaxError explain_syntax_error(std::string_view text, int64_t byte, std::string_view reason) {
  if (const int64_t tab = find_tab_indent(text, byte); tab >= 0) {
    return {tab, "a tab is used for indentation; YAML allows only spaces"};
  }
  // yaml-cpp's messages name the states of its grammar; these name what the user sees.
  namespace msg = YAML::ErrorMsg;
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kExplanations = {{
      {msg::MAP_VALUE, "unexpected ':'; check the indentation, and quote text that holds ': '"},
      {msg::MAP_KEY, "a key cannot stand here; check the indentation"},
      {msg::BLOCK_ENTRY, "a list entry ('- ') cannot stand here; put it on a line of its own below the key"},
      {msg::END_OF_MAP, "unexpected text; check the indentation and the quotes"},
      {msg::END_OF_SEQ, "unexpected text in a list; check the indentation"},
      {msg::END_OF_MAP_FLOW, "'{' is not closed by '}', or a ',' is missing"},
      {msg::END_OF_SEQ_FLOW, "'[' is not closed by ']', or a ',' is missing"},
      {msg::EOF_IN_SCALAR, "a quote is never closed"},
      {msg::FLOW_END, "a closing bracket without an opening one"},
      {msg::UNKNOWN_TOKEN, "text cannot start with this character; put it in quotes"},
      {msg::UNKNOWN_ANCHOR, "anchors and aliases (& and *) are not supported; write the values out"},
  }};
  for (const auto& [original, explanation] : kExplanations) {
    // yaml-cpp 0.8 appends the name to what 0.7 says of an unknown anchor.
    if (reason == original || (original == msg::UNKNOWN_ANCHOR && reason.starts_with(original))) {
      return {byte, std::string(explanation)};
    }
  }
  return {byte, std::string(reason)};
}

}  // namespace longhaul::config
