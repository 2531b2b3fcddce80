// What a user most likely meant by a key or a word that does not exist. Hints only: nothing is ever accepted by guessing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "config/schema.h"

namespace longhaul::config {

// Insertions, deletions, substitutions and swaps of neighbours that turn one word into the other.
[[nodiscard]] int64_t edit_distance(std::string_view a, std::string_view b);

// The closest of `choices`, or an empty text when none is close.
[[nodiscard]] std::string_view nearest_word(std::string_view word, std::span<const std::string_view> choices);

// For the unknown key `name` in the section `section` (dotted, "" is the root): "did you mean optimizer.learning_rate?",
// or the known keys of the section; searched are the section, the whole tree and the names of other trainers.
[[nodiscard]] std::string suggest_key(const Schema& schema, std::string_view section, std::string_view name);

// A name that another trainer uses.
struct Alias {
  std::string_view name;
  std::string_view key;   // ours, the last parts of a dotted key suffice; may be empty
  std::string_view note;  // what differs; may be empty
};
[[nodiscard]] std::span<const Alias> known_aliases();

}  // namespace longhaul::config
