// A section that changes another section of the same kind: a stage's `optimizer: {learning_rate: 1e-4}` over the
// recipe's `optimizer`. Only the keys that the user wrote count; the rest comes from the section underneath.
// Lists and optional sections are leaves: an overlay replaces them as a whole.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "config/field.h"
#include "config/source_map.h"

namespace longhaul::config {

// Dotted keys of leaves, relative to the section: "learning_rate", "muon.momentum".
using GivenKeys = std::set<std::string, std::less<>>;

template <class T>
struct Overlay {
  T values{};       // defaults, except at the given keys
  GivenKeys given;  // what the user wrote

  [[nodiscard]] bool empty() const { return given.empty(); }
  // A copy of `base` with the given keys replaced.
  [[nodiscard]] T apply(const T& base) const;
};

namespace detail {

// Remembers where each leaf of a section lives.
class FieldAddresses {
 public:
  FieldAddresses(std::map<std::string, void*, std::less<>>& out, std::string path) : out_(out), path_(std::move(path)) {}

  template <class T>
  Field<T> field(std::string_view key, T& value, std::string_view /*help*/) {
    std::string full = join_key(path_, key);
    if constexpr (kFieldKind<T> == FieldKind::Section) {
      FieldAddresses child(out_, std::move(full));
      describe(child, value);
    } else {
      out_.emplace(std::move(full), &value);
    }
    return Field<T>(nullptr, 0, value);
  }

 private:
  std::map<std::string, void*, std::less<>>& out_;
  std::string path_;
};

// Copies given leaves from addresses collected from a section of the same type: a key names the same member in both.
class FieldCopier {
 public:
  FieldCopier(const std::map<std::string, void*, std::less<>>& from, const GivenKeys& given, std::string path)
      : from_(from), given_(given), path_(std::move(path)) {}

  template <class T>
  Field<T> field(std::string_view key, T& value, std::string_view /*help*/) {
    const std::string full = join_key(path_, key);
    if constexpr (kFieldKind<T> == FieldKind::Section) {
      FieldCopier child(from_, given_, full);
      describe(child, value);
    } else if (given_.contains(full)) {
      const auto source = from_.find(full);
      LH_CHECK(source != from_.end(), "describe() lists {} for one object and not for another of the same type", full);
      value = *static_cast<const T*>(source->second);
    }
    return Field<T>(nullptr, 0, value);
  }

 private:
  const std::map<std::string, void*, std::less<>>& from_;
  const GivenKeys& given_;
  std::string path_;
};

}  // namespace detail

template <class T>
T Overlay<T>::apply(const T& base) const {
  T source = values;
  std::map<std::string, void*, std::less<>> addresses;
  detail::FieldAddresses collect(addresses, "");
  describe(collect, source);
  T out = base;
  detail::FieldCopier copy(addresses, given, "");
  describe(copy, out);
  return out;
}

}  // namespace longhaul::config
