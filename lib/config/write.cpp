// See write.h.
#include "config/write.h"

#include <algorithm>

#include <algorithm>

namespace longhaul::config {

namespace {

// Compared as one value: scalars, null, lists of scalars.
bool is_leaf(const Node& node) {
  const auto is_section = [](const NodeEntry& entry) { return entry.value.kind == Node::Kind::Map; };
  return node.kind != Node::Kind::Map && std::ranges::none_of(node.entries, is_section);
}

// The keys of both in order: those of `left`, then those that only `right` has.
std::vector<std::string> child_keys(const Node& left, const Node& right) {
  std::vector<std::string> keys;
  for (const Node* node : {&left, &right}) {
    for (std::size_t i = 0; i < node->entries.size(); ++i) {
      std::string key = node->kind == Node::Kind::List ? std::to_string(i) : node->entries[i].key;
      if (std::ranges::find(keys, key) == keys.end()) {
        keys.push_back(std::move(key));
      }
    }
  }
  return keys;
}

const Node* child(const Node& node, const std::string& key, std::size_t index) {
  if (node.kind == Node::Kind::List) {
    return index < node.entries.size() ? &node.entries[index].value : nullptr;
  }
  return node.find(key);
}

void compare(const Node* left, const Node* right, const std::string& key, std::vector<Difference>& out) {
  const bool both = left != nullptr && right != nullptr;
  const bool descend = both && left->kind == right->kind && !(is_leaf(*left) && is_leaf(*right));
  if (descend) {
    const auto keys = child_keys(*left, *right);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      compare(child(*left, keys[i], i), child(*right, keys[i], i), join_key(key, keys[i]), out);
    }
    return;
  }
  const std::string left_text = left != nullptr ? emit_inline(*left) : "";
  const std::string right_text = right != nullptr ? emit_inline(*right) : "";
  if (left_text != right_text) {
    out.push_back({.key = key, .left = left_text, .right = right_text});
  }
}

}  // namespace

uint64_t hash_text(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

std::vector<Difference> diff_nodes(const Node& left, const Node& right) {
  std::vector<Difference> out;
  compare(&left, &right, "", out);
  return out;
}

}  // namespace longhaul::config
