// See shape.h.
#include "tools/bench/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace longhaul::bench {

void Sizes::set(std::string_view text) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t equals = item.find('=');
    int64_t value = 0;
    const std::string_view digits = equals == std::string_view::npos ? "" : item.substr(equals + 1);
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (problem != std::errc{} || end != digits.data() + digits.size() || value < 1) {
      throw RecipeError("--shape must be sizes by letter, such as {}, got \"{}\"", this->text(), item);
    }
    const auto found = std::find_if(values_.begin(), values_.end(), [&](const auto& entry) { return entry.first == item.substr(0, equals); });
    if (found == values_.end()) {
      throw RecipeError("--shape: \"{}\" is not a size of this operation, which has {}", item.substr(0, equals), this->text());
    }
    found->second = value;
  }
}

int64_t Sizes::operator[](std::string_view letter) const {
  const auto found = std::find_if(values_.begin(), values_.end(), [letter](const auto& entry) { return entry.first == letter; });
  LH_CHECK(found != values_.end(), "there is no size {}", letter);
  return found->second;
}

std::string Sizes::text() const {
  std::string out;
  for (const auto& [letter, value] : values_) {
    out += fmt::format("{}{}={}", out.empty() ? "" : ",", letter, value);
  }
  return out;
}

}  // namespace longhaul::bench
