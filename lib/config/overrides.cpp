// See overrides.h.
#include "config/overrides.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "config/parse.h"
#include "config/text_checks.h"

namespace longhaul::config {

namespace {

std::string_view trim(std::string_view text) {
  const auto first = std::min(text.find_first_not_of(" \t"), text.size());
  text.remove_prefix(first);
  return text.substr(0, text.find_last_not_of(" \t") + 1);
}

void move_to_source(Node& node, int32_t source) {
  node.position = {.source = source, .line = 0, .column = 0};
  for (NodeEntry& entry : node.entries) {
    entry.position = node.position;
    move_to_source(entry.value, source);
  }
}

// One override on its way into the tree.
class Override {
 public:
  Override(std::string_view text, int32_t source, std::vector<Problem>& problems)
      : name_(override_name(text)), source_(source), problems_(problems) {
    const auto equals = text.find('=');
    key_ = trim(text.substr(0, equals));
    if (equals == std::string_view::npos || key_.empty()) {
      key_ = {};
      report("must have the form key=value, for example optimizer.learning_rate=1e-4");
      return;
    }
    parts_ = split_key(key_);
    if (std::ranges::any_of(parts_, &std::string_view::empty)) {
      report("the key has an empty part");
    } else if (static_cast<int64_t>(parts_.size()) > kMaxRecipeDepth) {
      report("the key has too many parts");
    } else {
      value_ = parse_value(text.substr(equals + 1));
    }
  }

  void apply(Node& root) {
    if (!value_) {
      return;
    }
    Node* node = &root;
    for (std::size_t i = 0; i < parts_.size() && node != nullptr; ++i) {
      node = step(*node, i);
    }
    if (node != nullptr) {
      *node = std::move(*value_);
    }
  }

 private:
  void report(std::string message) {
    problems_.push_back({.file = name_, .key = std::string(key_), .message = std::move(message)});
  }

  std::optional<Node> parse_value(std::string_view text) {
    ParsedText parsed = parse_yaml(text, source_, name_);
    for (Problem& problem : parsed.problems) {
      problem.line = 0;
      problem.key = problem.key.empty() ? std::string(key_) : join_key(key_, problem.key);
      problems_.push_back(std::move(problem));
    }
    if (parsed.root) {
      move_to_source(*parsed.root, source_);
    }
    return std::move(parsed.root);
  }

  // The child of `node` that part i names; null after reporting why there is none. The last part of the key takes the
  // position of the override.
  Node* step(Node& node, std::size_t i) {
    const std::string_view part = parts_[i];
    const std::string_view parent = key_.substr(0, i == 0 ? 0 : static_cast<std::size_t>(part.data() - key_.data()) - 1);
    const Position here{.source = source_, .line = 0, .column = 0};
    const bool last = i + 1 == parts_.size();
    if (node.kind == Node::Kind::Invalid) {
      return nullptr;  // reported by the parser
    }
    if (node.kind == Node::Kind::List) {
      const auto index = list_index(node, part);
      if (!index) {
        report(node.entries.empty() ? fmt::format("{} is an empty list", parent)
                                    : fmt::format("{} has the entries 0 to {}, got {}", parent, node.entries.size() - 1, part));
        return nullptr;
      }
      NodeEntry& entry = node.entries[*index];
      entry.position = last ? here : entry.position;
      return &entry.value;
    }
    if (node.kind == Node::Kind::Scalar) {
      report(fmt::format("{} is {}, not a section", parent, describe_value(node)));
      return nullptr;
    }
    node.kind = Node::Kind::Map;  // an empty section reads as null
    const auto found = std::ranges::find(node.entries, part, &NodeEntry::key);
    if (found == node.entries.end()) {
      node.entries.push_back({.key = std::string(part), .position = here, .value = {}});
      return &node.entries.back().value;
    }
    found->position = last ? here : found->position;
    return &found->value;
  }

  std::string name_;
  int32_t source_;
  std::vector<Problem>& problems_;
  std::string_view key_;
  std::vector<std::string_view> parts_;
  std::optional<Node> value_;
};

}  // namespace

std::optional<std::size_t> list_index(const Node& list, std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  return whole && value < list.entries.size() ? std::optional(value) : std::nullopt;
}

std::string override_name(std::string_view text) {
  constexpr int64_t kMaxBytes = 160;
  return fmt::format("--set {}", shorten(text, kMaxBytes));
}

void apply_override(Node& root, std::string_view text, int32_t source, std::vector<Problem>& problems) {
  Override(text, source, problems).apply(root);
}

}  // namespace longhaul::config
