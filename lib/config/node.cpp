// See node.h.
#include "config/node.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/scalar.h"
#include "config/text_checks.h"

namespace longhaul::config {

Node Node::scalar(std::string text, Style style) {
  Node node;
  node.kind = Kind::Scalar;
  node.style = style;
  node.text = std::move(text);
  return node;
}

const Node* Node::find(std::string_view key) const {
  const auto found = std::ranges::find(entries, key, &NodeEntry::key);
  return kind == Kind::Map && found != entries.end() ? &found->value : nullptr;
}

Node* Node::find(std::string_view key) { return const_cast<Node*>(std::as_const(*this).find(key)); }

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\t': out += "\\t"; break;
      case '\r': out += "\\r"; break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7f) {
          out += fmt::format("\\x{:02x}", byte);
        } else {
          out += c;
        }
      }
    }
  }
  out += '"';
  return out;
}

std::string describe_value(const Node& node) {
  switch (node.kind) {
    case Node::Kind::Null: return "null";
    case Node::Kind::List: return "a list";
    case Node::Kind::Map: return "a section";
    case Node::Kind::Invalid: return "an unsupported value";
    case Node::Kind::Scalar: break;
  }
  constexpr int64_t kMaxBytes = 60;
  const std::string text = shorten(node.text, kMaxBytes);
  const std::string quoted = quote(text);
  const bool needs_quotes = node.style == Node::Style::Quoted || quoted.size() != text.size() + 2;
  return needs_quotes ? quoted : text;
}

namespace {

std::string scalar_text(const Node& node) {
  return node.style == Node::Style::Quoted ? quote(node.text) : node.text;
}

std::string key_text(std::string_view key) { return is_safe_plain(key) ? std::string(key) : quote(key); }

bool is_block(const Node& node) {
  if (node.entries.empty()) {
    return false;
  }
  return node.kind == Node::Kind::Map ||
         std::ranges::any_of(node.entries, [](const NodeEntry& entry) { return entry.value.kind == Node::Kind::Map; });
}

void emit_block(const Node& node, int64_t indent, std::string& out);

// What follows "key:" or "-": on the same line, or an indented block below.
void emit_value(const Node& value, int64_t indent, std::string& out) {
  if (is_block(value)) {
    out += "\n";
    emit_block(value, indent, out);
  } else {
    out += fmt::format(" {}\n", emit_inline(value));
  }
}

void emit_block(const Node& node, int64_t indent, std::string& out) {
  const std::string spaces(static_cast<std::size_t>(indent), ' ');
  for (const NodeEntry& entry : node.entries) {
    if (node.kind == Node::Kind::Map) {
      out += fmt::format("{}{}:", spaces, key_text(entry.key));
      emit_value(entry.value, indent + 2, out);
      continue;
    }
    if (entry.value.kind == Node::Kind::Map && !entry.value.entries.empty()) {
      // "- first: ..." with the other keys below the first.
      std::string block;
      emit_block(entry.value, indent + 2, block);
      block.replace(static_cast<std::size_t>(indent), 1, "-");
      out += block;
      continue;
    }
    out += fmt::format("{}-", spaces);
    emit_value(entry.value, indent + 2, out);
  }
}

}  // namespace

std::string emit_inline(const Node& node) {
  switch (node.kind) {
    case Node::Kind::Null:
    case Node::Kind::Invalid: return "null";
    case Node::Kind::Scalar: return scalar_text(node);
    case Node::Kind::List:
    case Node::Kind::Map: break;
  }
  const bool map = node.kind == Node::Kind::Map;
  std::string out = map ? "{" : "[";
  for (const NodeEntry& entry : node.entries) {
    out += out.size() > 1 ? ", " : "";
    if (map) {
      out += fmt::format("{}: ", key_text(entry.key));
    }
    out += emit_inline(entry.value);
  }
  out += map ? "}" : "]";
  return out;
}

std::string emit(const Node& node) {
  std::string out;
  if (is_block(node)) {
    emit_block(node, 0, out);
  } else {
    out = fmt::format("{}\n", emit_inline(node));
  }
  return out;
}

}  // namespace longhaul::config
