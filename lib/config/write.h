// From option structs to YAML: dump (the resolved recipe), diff and hash. All three look at the same tree, so that two
// structs with one dump have one hash and no difference.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/field.h"
#include "config/node.h"
#include "config/overlay.h"

namespace longhaul::config {

namespace detail {

template <class T>
[[nodiscard]] Node to_node(T& value);

// Appends each field to a map, in the order of describe(). With `given`, only those keys (relative to the overlay).
class WriteVisitor {
 public:
  WriteVisitor(Node& out, const GivenKeys* given, std::string path) : out_(out), given_(given), path_(std::move(path)) {
    out_.kind = Node::Kind::Map;
  }

  template <class T>
  Field<T> field(std::string_view key, T& value, std::string_view /*help*/) {
    std::string full = join_key(path_, key);
    if constexpr (kFieldKind<T> == FieldKind::Section) {
      Node node;
      WriteVisitor child(node, given_, std::move(full));
      describe(child, value);
      if (given_ == nullptr || !node.entries.empty()) {
        add(key, std::move(node));
      }
    } else if constexpr (kFieldKind<T> == FieldKind::Overlay) {
      if ((given_ == nullptr || given_->contains(full)) && !value.empty()) {
        add(key, to_node(value));
      }
    } else if (given_ == nullptr || given_->contains(full)) {
      add(key, to_node(value));
    }
    return Field<T>(nullptr, 0, value);
  }

 private:
  void add(std::string_view key, Node node) {
    out_.entries.push_back({.key = std::string(key), .position = {}, .value = std::move(node)});
  }

  Node& out_;
  const GivenKeys* given_;
  std::string path_;
};

template <class T>
Node to_node(T& value) {
  Node out;
  if constexpr (kFieldKind<T> == FieldKind::Section) {
    WriteVisitor visitor(out, nullptr, "");
    describe(visitor, value);
  } else if constexpr (kFieldKind<T> == FieldKind::Overlay) {
    WriteVisitor visitor(out, &value.given, "");
    describe(visitor, value.values);
  } else if constexpr (kFieldKind<T> == FieldKind::List) {
    out.kind = Node::Kind::List;
    for (auto& entry : value) {
      out.entries.push_back({.key = {}, .position = {}, .value = to_node(entry)});
    }
  } else if constexpr (kFieldKind<T> == FieldKind::Optional) {
    out = value ? to_node(*value) : Node{};
  } else {
    out = write_scalar(value);
  }
  return out;
}

}  // namespace detail

// The tree of a struct; describe() takes its argument by reference to non-const, hence the copy.
template <SectionOption T>
[[nodiscard]] Node write(T value) {
  return detail::to_node(value);
}

// YAML text with every key, in the order of describe(). read() of the text gives an equal struct: numbers are printed so
// that they keep every bit.
template <SectionOption T>
[[nodiscard]] std::string dump(const T& value) {
  return emit(write(value));
}

// A 64-bit number that depends on the dump alone (FNV-1a): the same on every machine and in every run.
[[nodiscard]] uint64_t hash_text(std::string_view text);
template <SectionOption T>
[[nodiscard]] uint64_t hash(const T& value) {
  return hash_text(dump(value));
}

struct Difference {
  std::string key;    // dotted, list entries of sections by index
  std::string left;   // inline YAML; empty where the key is absent (a shorter list, an overlay without the key)
  std::string right;
};

[[nodiscard]] std::vector<Difference> diff_nodes(const Node& left, const Node& right);
// The keys whose values differ, in the order of describe().
template <SectionOption T>
[[nodiscard]] std::vector<Difference> diff(const T& left, const T& right) {
  return diff_nodes(write(left), write(right));
}

}  // namespace longhaul::config
