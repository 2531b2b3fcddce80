// All keys that a struct can read, as data: for the table of the documentation and for suggestions when a key is wrong.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/field.h"
#include "config/overlay.h"
#include "config/write.h"

namespace longhaul::config {

struct FieldInfo {
  // An overlay and the keys in it repeat a section that stands elsewhere in the tree.
  enum class Origin { Own, Overlay, InOverlay };

  std::string key;            // dotted; N stands for the index in a list of sections: "stages.N.steps"
  std::string type;           // "integer", "list of numbers", "text or null", "section"
  std::string default_value;  // inline YAML; empty for sections
  std::string help;
  std::vector<std::string> rules;  // each completes "must be ..."
  bool is_required = false;
  Origin origin = Origin::Own;
};

using Schema = std::vector<FieldInfo>;

namespace detail {

template <class T>
[[nodiscard]] std::string type_name() {
  if constexpr (std::same_as<T, bool>) {
    return "true or false";
  } else if constexpr (NamedEnum<T>) {
    return "one of " + enum_choices<T>();
  } else if constexpr (std::integral<T>) {
    return "integer";
  } else if constexpr (std::floating_point<T>) {
    return "number";
  } else if constexpr (std::same_as<T, std::string>) {
    return "text";
  } else if constexpr (kFieldKind<T> == FieldKind::Section) {
    return "section";
  } else if constexpr (kFieldKind<T> == FieldKind::Overlay) {
    return "section of changes";
  } else if constexpr (kFieldKind<T> == FieldKind::Optional) {
    return type_name<typename T::value_type>() + " or null";
  } else {
    using Entry = typename T::value_type;
    const bool has_plural = !NamedEnum<Entry> && !std::same_as<Entry, std::string>;
    return "list of " + type_name<Entry>() + (has_plural ? "s" : "");
  }
}

class SchemaVisitor final : public RuleSink {
 public:
  using Origin = FieldInfo::Origin;

  SchemaVisitor(Schema& out, std::string path, Origin origin) : out_(out), path_(std::move(path)), origin_(origin) {}

  template <class T>
  Field<T> field(std::string_view key, T& value, std::string_view help) {
    const auto index = static_cast<int64_t>(out_.size());
    const std::string full = join_key(path_, key);
    out_.push_back({.key = full,
                    .type = type_name<T>(),
                    .default_value = {},
                    .help = std::string(help),
                    .rules = {},
                    .is_required = false,
                    .origin = origin_});
    if constexpr (kFieldKind<T> == FieldKind::Section) {
      describe_child(full, value, origin_);
    } else if constexpr (kFieldKind<T> == FieldKind::Overlay) {
      out_.back().origin = origin_ == Origin::Own ? Origin::Overlay : origin_;
      describe_child(full, value.values, Origin::InOverlay);
    } else {
      out_.back().default_value = emit_inline(to_node(value));
      if constexpr (kFieldKind<T> == FieldKind::List || kFieldKind<T> == FieldKind::Optional) {
        if constexpr (kFieldKind<typename T::value_type> == FieldKind::Section) {
          typename T::value_type entry{};
          describe_child(kFieldKind<T> == FieldKind::List ? join_key(full, "N") : full, entry, origin_);
        }
      }
    }
    return Field<T>(this, index, value);
  }

  void on_rule(int64_t field, std::string_view rule, std::span<const Violation> /*violations*/) override {
    out_[static_cast<std::size_t>(field)].rules.emplace_back(rule);
  }
  void on_required(int64_t field) override { out_[static_cast<std::size_t>(field)].is_required = true; }

 private:
  template <class T>
  void describe_child(std::string path, T& value, Origin origin) {
    SchemaVisitor child(out_, std::move(path), origin);
    describe(child, value);
  }

  Schema& out_;
  std::string path_;
  Origin origin_;
};

}  // namespace detail

// "stages.1.optimizer" -> "stages.N.optimizer".
[[nodiscard]] std::string schema_key(std::string_view key);

// The keys of T below `path`.
template <SectionOption T>
[[nodiscard]] Schema schema_of(std::string_view path = "") {
  Schema out;
  T value{};
  detail::SchemaVisitor visitor(out, schema_key(path), FieldInfo::Origin::Own);
  describe(visitor, value);
  return out;
}

// A markdown table of key, type and rules, default, help: one row a key. Keys of overlays are not repeated.
[[nodiscard]] std::string markdown_table(const Schema& schema);
template <SectionOption T>
[[nodiscard]] std::string docs() {
  return markdown_table(schema_of<T>());
}

}  // namespace longhaul::config
