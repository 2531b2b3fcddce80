// Names of enumerators, kept as one table beside the enum, so that recipes, logs, metrics and error messages spell a
// value alike. An owner writes, in the namespace of the enum (the table is found through the argument):
//
//   enum class Schedule { Cosine, Constant };
//   constexpr EnumNames<Schedule, 2> enum_names(Schedule) {
//     return {{{Schedule::Cosine, "cosine"}, {Schedule::Constant, "constant"}}};
//   }
//
// Every enumerator is listed once; names are lower case with underscores.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace longhaul {

template <class E, std::size_t N>
using EnumNames = std::array<std::pair<E, std::string_view>, N>;

// An enum whose owner gives its names.
template <class E>
concept NamedEnum = std::is_enum_v<E> && requires(E value) {
  { enum_names(value).size() };
  { enum_names(value)[0].second } -> std::convertible_to<std::string_view>;
};

// The name of a value; throws InternalError for a value that is missing from the table.
template <NamedEnum E>
[[nodiscard]] constexpr std::string_view enum_name(E value) {
  for (const auto& [candidate, name] : enum_names(value)) {
    if (candidate == value) {
      return name;
    }
  }
  throw InternalError("the enumerator {} has no name in its table", static_cast<long long>(value));
}

// The value of a name, or nothing.
template <NamedEnum E>
[[nodiscard]] constexpr std::optional<E> enum_value(std::string_view name) {
  for (const auto& [value, candidate] : enum_names(E{})) {
    if (candidate == name) {
      return value;
    }
  }
  return std::nullopt;
}

// "cosine, constant": all names in the order of the table, for messages.
template <NamedEnum E>
[[nodiscard]] std::string enum_choices() {
  std::string out;
  for (const auto& entry : enum_names(E{})) {
    out += out.empty() ? "" : ", ";
    out += entry.second;
  }
  return out;
}

}  // namespace longhaul
