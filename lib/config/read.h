// Fills option structs from a document, strictly: unknown keys, wrong types, broken rules and missing required keys are
// all collected in `diagnostics`; nothing is thrown here. Keys that are absent leave the struct as it was, so that reading
// over a filled struct changes only what the user wrote. At the top level, keys that start with `x_` belong to the user
// (notes, parameters of his own tools): they are accepted and passed over.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/diagnostics.h"
#include "config/document.h"
#include "config/field.h"
#include "config/overlay.h"
#include "config/schema.h"

namespace longhaul::config {

enum class UnknownKeys { Refuse, Ignore };
enum class MissingKeys { Report, Allow };

struct ReadOptions {
  UnknownKeys unknown_keys = UnknownKeys::Refuse;   // Ignore: for files of other programs, such as a released config.json
  MissingKeys missing_keys = MissingKeys::Report;   // Allow: required keys may come from elsewhere
};

namespace detail {

// What reading one value led to. Rules are checked only on values that were Read.
enum class Outcome { Absent, Read, Failed };

// What all sections of one read() share.
class ReadSession {
 public:
  ReadSession(const Document& document, Schema schema, ReadOptions options, Diagnostics& diagnostics);

  void bad_value(const std::string& key, const Node& node, std::string_view expected, std::string_view hint = {});
  void bad_list(const std::string& key, const Node& node, std::string_view type);
  void bad_word(const std::string& key, const Node& node, std::string_view expected,
                std::span<const std::string_view> words);
  void broken_rule(const std::string& key, std::string_view rule, const Violation& violation);
  void unknown_key(const std::string& section, const NodeEntry& entry);
  void missing_key(const std::string& key);
  [[nodiscard]] const ReadOptions& options() const noexcept { return options_; }

 private:
  Schema schema_;
  ReadOptions options_;
  Diagnostics& diagnostics_;
};

// How the sections below the current one are read.
struct ReadMode {
  MissingKeys missing = MissingKeys::Report;
  GivenKeys* given = nullptr;  // where an overlay wants to know its written keys
  std::string overlay_key;     // the dotted key of that overlay
};

template <class T>
[[nodiscard]] Outcome read_value(ReadSession& session, const ReadMode& mode, const Node* node, const std::string& key,
                                 T& value);

// The fields of one section. `section` is null where the section is absent.
class ReadVisitor final : public RuleSink {
 public:
  ReadVisitor(ReadSession& session, ReadMode mode, const Node* section, std::string path)
      : session_(session), mode_(std::move(mode)), section_(section), path_(std::move(path)) {}

  template <class T>
  Field<T> field(std::string_view key, T& value, std::string_view /*help*/) {
    const int64_t index = add_field(key);
    const std::string full = join_key(path_, key);
    const Node* node = section_ != nullptr ? section_->find(key) : nullptr;
    const Outcome outcome = read_value(session_, mode_, node, full, value);
    fields_[static_cast<std::size_t>(index)].outcome = outcome;
    if (kFieldKind<T> != FieldKind::Section && outcome != Outcome::Absent && mode_.given != nullptr) {
      mode_.given->insert(full.substr(mode_.overlay_key.size() + 1));
    }
    return Field<T>(this, index, value);
  }

  // Reports keys that no field asked for.
  void finish();

  void on_rule(int64_t field, std::string_view rule, std::span<const Violation> violations) override;
  void on_required(int64_t field) override;

 private:
  struct ReadField {
    std::string key;
    Outcome outcome = Outcome::Absent;
  };
  int64_t add_field(std::string_view key);

  ReadSession& session_;
  ReadMode mode_;
  const Node* section_;
  std::string path_;
  std::vector<ReadField> fields_;
};

template <class T>
Outcome read_section_value(ReadSession& session, const ReadMode& mode, const Node* node, const std::string& key, T& value) {
  const bool is_section = node != nullptr && (node->kind == Node::Kind::Map || node->kind == Node::Kind::Null);
  if (node != nullptr && !is_section) {
    session.bad_value(key, *node, "a section of keys");
    return Outcome::Failed;
  }
  ReadVisitor visitor(session, mode, node, key);
  describe(visitor, value);
  visitor.finish();
  return node != nullptr ? Outcome::Read : Outcome::Absent;
}

template <class T>
Outcome read_list(ReadSession& session, const Node& node, const std::string& key, std::vector<T>& value) {
  if (node.kind != Node::Kind::List) {
    session.bad_list(key, node, type_name<std::vector<T>>());
    return Outcome::Failed;
  }
  std::vector<T> entries(node.entries.size());
  Outcome outcome = Outcome::Read;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Node& entry = node.entries[i].value;
    const std::string entry_key = join_key(key, std::to_string(i));
    if (kFieldKind<T> == FieldKind::Section && entry.kind == Node::Kind::Null) {
      session.bad_value(entry_key, entry, "a section of keys");
      outcome = Outcome::Failed;
    } else if (read_value(session, ReadMode{}, &entry, entry_key, entries[i]) == Outcome::Failed) {
      outcome = Outcome::Failed;
    }
  }
  value = std::move(entries);
  return outcome;
}

template <ScalarOption T>
Outcome read_scalar_value(ReadSession& session, const Node& node, const std::string& key, T& value) {
  const std::string expected = read_scalar(node, value);
  if (expected.empty()) {
    return Outcome::Read;
  }
  if constexpr (NamedEnum<T>) {
    std::vector<std::string_view> words;
    for (const auto& entry : enum_names(T{})) {
      words.push_back(entry.second);
    }
    session.bad_word(key, node, expected, words);
  } else {
    Node unquoted = node;
    unquoted.style = Node::Style::Plain;
    session.bad_value(key, node, expected, read_scalar(unquoted, value).empty() ? "; remove the quotes" : "");
  }
  return Outcome::Failed;
}

template <class T>
Outcome read_value(ReadSession& session, const ReadMode& mode, const Node* node, const std::string& key, T& value) {
  if (node != nullptr && node->kind == Node::Kind::Invalid) {
    return Outcome::Failed;  // reported by the parser
  }
  if constexpr (kFieldKind<T> == FieldKind::Section) {
    return read_section_value(session, mode, node, key, value);
  } else if constexpr (kFieldKind<T> == FieldKind::Overlay) {
    if (node == nullptr) {
      return Outcome::Absent;
    }
    value = T{};
    const ReadMode inner{.missing = MissingKeys::Allow, .given = &value.given, .overlay_key = key};
    return read_section_value(session, inner, node, key, value.values);
  } else {
    if (node == nullptr) {
      return Outcome::Absent;
    }
    if constexpr (kFieldKind<T> == FieldKind::Optional) {
      if (node->kind == Node::Kind::Null) {
        value.reset();
        return Outcome::Read;
      }
      typename T::value_type inner = value ? std::move(*value) : typename T::value_type{};
      const Outcome outcome = read_value(session, ReadMode{}, node, key, inner);
      value = std::move(inner);
      return outcome;
    } else if constexpr (kFieldKind<T> == FieldKind::List) {
      return read_list(session, *node, key, value);
    } else {
      return read_scalar_value(session, *node, key, value);
    }
  }
}

}  // namespace detail

// Reads the section `key` ("stages.1.optimizer"; "" is the whole document) over `value`. Returns whether the user wrote
// the section; Document::given() tells the same of each key in it.
template <SectionOption T>
bool read_section(const Document& document, const std::string& key, T& value, Diagnostics& diagnostics,
                  ReadOptions options = {}) {
  detail::ReadSession session(document, schema_of<T>(key), options, diagnostics);
  const detail::ReadMode mode{.missing = options.missing_keys, .given = nullptr, .overlay_key = {}};
  return detail::read_value(session, mode, document.find(key), key, value) != detail::Outcome::Absent;
}

// Reads the whole document.
template <SectionOption T>
void read(const Document& document, T& value, Diagnostics& diagnostics, ReadOptions options = {}) {
  static_cast<void>(read_section(document, "", value, diagnostics, options));
}

}  // namespace longhaul::config
