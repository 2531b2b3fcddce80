// See read.h.
#include "config/read.h"

#include <algorithm>

#include "config/suggest.h"

namespace longhaul::config::detail {

ReadSession::ReadSession(const Document& document, Schema schema, ReadOptions options, Diagnostics& diagnostics)
    : schema_(std::move(schema)), options_(options), diagnostics_(diagnostics) {
  diagnostics_.attach(document.source_map());
  for (const Problem& problem : document.problems()) {
    diagnostics_.add(problem);
  }
}

void ReadSession::bad_value(const std::string& key, const Node& node, std::string_view expected, std::string_view hint) {
  if (node.kind == Node::Kind::Invalid) {
    return;
  }
  diagnostics_.add(key, "must be {}, got {}{}", expected, describe_value(node), hint);
}

void ReadSession::bad_list(const std::string& key, const Node& node, std::string_view type) {
  const bool single = node.kind == Node::Kind::Scalar;
  bad_value(key, node, fmt::format("a {}", type), single ? fmt::format("; write [{}]", describe_value(node)) : "");
}

void ReadSession::bad_word(const std::string& key, const Node& node, std::string_view expected,
                           std::span<const std::string_view> words) {
  const std::string_view nearest = node.kind == Node::Kind::Scalar ? nearest_word(node.text, words) : std::string_view{};
  bad_value(key, node, expected, nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

void ReadSession::broken_rule(const std::string& key, std::string_view rule, const Violation& violation) {
  const std::string full = violation.suffix.empty() ? key : join_key(key, violation.suffix);
  diagnostics_.add(full, "must be {}, got {}", rule, violation.got);
}

void ReadSession::unknown_key(const std::string& section, const NodeEntry& entry) {
  const bool is_free = section.empty() && entry.key.starts_with("x_");
  if (options_.unknown_keys == UnknownKeys::Ignore || is_free || entry.value.kind == Node::Kind::Invalid) {
    return;
  }
  // Beyond what is shown, looking for suggestions is lost time.
  const bool shown = diagnostics_.count() < Diagnostics::kMaxKept;
  const std::string hint = shown ? suggest_key(schema_, section, entry.key) : std::string{};
  diagnostics_.add(join_key(section, entry.key), "unknown key{}{}", hint.empty() ? "" : "; ", hint);
}

void ReadSession::missing_key(const std::string& key) { diagnostics_.add(key, "is required and missing"); }

int64_t ReadVisitor::add_field(std::string_view key) {
  LH_CHECK(std::ranges::find(fields_, key, &ReadField::key) == fields_.end(), "describe() lists the key {} twice in '{}'", key,
           path_);
  fields_.push_back({.key = std::string(key), .outcome = Outcome::Absent});
  return static_cast<int64_t>(fields_.size()) - 1;
}

void ReadVisitor::finish() {
  if (section_ == nullptr) {
    return;
  }
  for (const NodeEntry& entry : section_->entries) {
    if (std::ranges::find(fields_, entry.key, &ReadField::key) == fields_.end()) {
      session_.unknown_key(path_, entry);
    }
  }
}

void ReadVisitor::on_rule(int64_t field, std::string_view rule, std::span<const Violation> violations) {
  const ReadField& checked = fields_[static_cast<std::size_t>(field)];
  if (checked.outcome != Outcome::Read) {
    return;
  }
  for (const Violation& violation : violations) {
    session_.broken_rule(join_key(path_, checked.key), rule, violation);
  }
}

void ReadVisitor::on_required(int64_t field) {
  const ReadField& checked = fields_[static_cast<std::size_t>(field)];
  if (checked.outcome == Outcome::Absent && mode_.missing == MissingKeys::Report) {
    session_.missing_key(join_key(path_, checked.key));
  }
}

}  // namespace longhaul::config::detail
