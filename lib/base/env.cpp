// See env.h.
#include "base/env.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace longhaul {

Env Env::process() {
  Env env;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) {
      env.variables_.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return env;
}

std::optional<std::string> Env::get(const std::string& name) const {
  const auto found = variables_.find(name);
  return found == variables_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<int64_t> Env::get_int(const std::string& name) const {
  const std::optional<std::string> text = get(name);
  if (!text.has_value()) {
    return std::nullopt;
  }
  int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, problem] = std::from_chars(text->data(), end, value);
  return problem == std::errc{} && stop == end ? std::optional(value) : std::nullopt;
}

std::optional<std::string> env_get(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace longhaul
