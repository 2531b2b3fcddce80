// See suggest.h. Candidates are scored, lower is closer, and all with the best score are named (three at most):
//   0  the name exists elsewhere in the tree, or a key of the section is one edit away
//   1  another trainer's name
//   2+ other similar keys of the section, then similar names of other trainers, then similar keys elsewhere
#include "config/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace longhaul::config {

namespace {

// Longer words are not typing mistakes, and comparing them costs.
constexpr std::size_t kMaxWord = 64;

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

std::string_view parent_of(std::string_view key) {
  const auto dot = key.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : key.substr(0, dot);
}

bool ends_with_key(std::string_view key, std::string_view tail) {
  return key == tail || (key.ends_with(tail) && key[key.size() - tail.size() - 1] == '.');
}

// The key of the schema with the indices of `section` where the two run in parallel.
std::string with_indices(std::string_view schema_key, std::string_view section) {
  const auto actual = split_key(section);
  std::string out;
  bool parallel = true;
  const auto parts = split_key(schema_key);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parallel = parallel && i < actual.size() && (parts[i] == actual[i] || (parts[i] == "N" && is_index(actual[i])));
    out = join_key(out, parallel ? actual[i] : parts[i]);
  }
  return out;
}

// 0 for equal, 1 for one edit or for a whole part of a name ("warmup" and "warmup_steps"); nothing beyond `limit`.
std::optional<int64_t> word_distance(std::string_view a, std::string_view b, int64_t limit) {
  if (a.size() > kMaxWord || b.size() > kMaxWord) {
    return std::nullopt;
  }
  const auto& [shorter, longer] = std::minmax(a, b, [](std::string_view x, std::string_view y) { return x.size() < y.size(); });
  if (shorter.size() >= 4 && shorter.size() < longer.size() &&
      (longer.starts_with(shorter) || longer.ends_with("_" + std::string(shorter)))) {
    return 1;
  }
  const int64_t distance = edit_distance(a, b);
  return distance <= limit ? std::optional(distance) : std::nullopt;
}

int64_t typing_limit(std::string_view word, int64_t letters_per_edit) {
  return std::max<int64_t>(1, static_cast<int64_t>(word.size()) / letters_per_edit);
}

// The best candidates so far.
class Best {
 public:
  void offer(int64_t score, std::string key, std::string_view note = {}) {
    if (score < score_) {
      score_ = score;
      keys_.clear();
      note_ = note;
    }
    if (score == score_ && std::ranges::find(keys_, key) == keys_.end()) {
      keys_.push_back(std::move(key));
    }
  }
  [[nodiscard]] std::string text() const {
    std::string names;
    constexpr std::size_t kMaxNames = 3;
    for (std::size_t i = 0; i < std::min(keys_.size(), kMaxNames); ++i) {
      names += (i == 0 ? "" : " or ") + keys_[i];
    }
    if (names.empty()) {
      return std::string(note_);
    }
    return note_.empty() ? fmt::format("did you mean {}?", names) : fmt::format("did you mean {} ({})?", names, note_);
  }
  void offer_note(int64_t score, std::string_view note) {
    if (score < score_) {
      score_ = score;
      keys_.clear();
      note_ = note;
    }
  }

 private:
  int64_t score_ = std::numeric_limits<int64_t>::max();
  std::vector<std::string> keys_;
  std::string_view note_;
};

void offer_keys(const Schema& schema, std::string_view section, std::string_view name, Best& best) {
  const std::string pattern = schema_key(section);
  for (const FieldInfo& field : schema) {
    const bool sibling = parent_of(field.key) == pattern;
    if (field.origin != FieldInfo::Origin::Own && !sibling) {
      continue;  // the key exists outside of the overlay too
    }
    const auto distance = word_distance(name, last_part(field.key), typing_limit(name, sibling ? 3 : 4));
    if (!distance) {
      continue;
    }
    const bool surest = *distance == 0 || (sibling && *distance == 1);
    best.offer(surest ? 0 : (sibling ? 2 : 8) + 2 * *distance, with_indices(field.key, section));
  }
}

void offer_aliases(const Schema& schema, std::string_view section, std::string_view name, Best& best) {
  for (const Alias& alias : known_aliases()) {
    const auto distance = word_distance(name, alias.name, typing_limit(name, 6));
    if (!distance) {
      continue;
    }
    const int64_t score = *distance == 0 ? 1 : 3 + 2 * *distance;
    if (alias.key.empty()) {
      best.offer_note(score, alias.note);
      continue;
    }
    for (const FieldInfo& field : schema) {
      if (field.origin == FieldInfo::Origin::Own && ends_with_key(field.key, alias.key)) {
        best.offer(score, with_indices(field.key, section), alias.note);
      }
    }
  }
}

std::string list_known_keys(const Schema& schema, std::string_view section_pattern, std::string_view section) {
  std::string names;
  for (const FieldInfo& field : schema) {
    if (parent_of(field.key) == section_pattern) {
      names += (names.empty() ? "" : ", ") + std::string(last_part(field.key));
    }
  }
  return names.empty() ? names : fmt::format("known keys of {}: {}", section.empty() ? "the recipe" : section, names);
}

}  // namespace

int64_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<int64_t> before_previous(b.size() + 1);
  std::vector<int64_t> previous(b.size() + 1);
  std::vector<int64_t> current(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    previous[j] = static_cast<int64_t>(j);
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = static_cast<int64_t>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int64_t substitution = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before_previous[j - 2] + 1);
      }
    }
    std::swap(before_previous, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> choices) {
  std::string_view best;
  int64_t best_distance = typing_limit(word, 3) + 1;
  for (const auto choice : choices) {
    const auto distance = word_distance(word, choice, typing_limit(word, 3));
    if (distance && *distance < best_distance) {
      best_distance = *distance;
      best = choice;
    }
  }
  return best;
}

std::string suggest_key(const Schema& schema, std::string_view section, std::string_view name) {
  const std::string pattern = schema_key(section);
  if (name.find(':') != std::string_view::npos) {
    return "write a space after the ':'";
  }
  for (const FieldInfo& field : schema) {
    if (name.find('.') != std::string_view::npos && field.key == schema_key(join_key(section, name))) {
      return "dots are for --set; in the file, nest the keys in their sections";
    }
  }
  Best best;
  offer_keys(schema, section, name, best);
  offer_aliases(schema, section, name, best);
  const std::string text = best.text();
  return text.empty() ? list_known_keys(schema, pattern, section) : text;
}

}  // namespace longhaul::config
