// See parse.h.
#include "config/parse.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "config/text_checks.h"

namespace longhaul::config {

namespace {

// Stops the parser from inside an event.
struct Fatal {
  Position position;
  std::string reason;
};

constexpr std::string_view kNoAnchors = "anchors and aliases (& and *) are not supported; write the values out";
constexpr std::string_view kNoTags = "tags (!) are not supported; the type of a key is known";
constexpr std::string_view kNoMerge = "merge keys (<<) are not supported; write the keys out";
constexpr std::string_view kWordKeys = "a key must be a word";

// Builds the tree from events. Features that recipes lack become Invalid nodes, so that the rest is still read.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, int32_t source) : text_(text), locator_(text, source) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      throw Fatal{at(mark), "unexpected content after the end of the document; check the indentation (one document a file)"};
    }
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(start(Node::Kind::Null, mark, "", anchor)); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(start(Node::Kind::Null, mark, "", anchor)); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    Node node = start(Node::Kind::Scalar, mark, tag, anchor);
    if (node.kind == Node::Kind::Scalar) {
      if (tag == "!" && !quote_is_closed(text_, mark.pos)) {
        throw Fatal{node.position, "the quote that starts here is never closed"};
      }
      node.text = value;
      node.style = tag == "!" ? Node::Style::Quoted : Node::Style::Plain;
    }
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(start(Node::Kind::List, mark, tag, anchor), Node::Kind::List);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(start(Node::Kind::Map, mark, tag, anchor), Node::Kind::Map);
  }
  void OnMapEnd() override { close(); }

  [[nodiscard]] Node take_root() { return std::move(root_); }
  [[nodiscard]] Position at(const YAML::Mark& mark) { return locator_.at(mark.pos); }

 private:
  struct Frame {
    Node node;
    Node::Kind kind;  // Map or List; node.kind may be Invalid
    std::optional<Node> key;
  };

  Node start(Node::Kind kind, const YAML::Mark& mark, std::string_view tag, YAML::anchor_t anchor) {
    Node node;
    node.kind = kind;
    node.position = at(mark);
    const bool plain_tag = tag.empty() || tag == "?" || tag == "!";
    if (anchor != 0 || !plain_tag) {
      node.kind = Node::Kind::Invalid;
      node.text = anchor != 0 ? kNoAnchors : kNoTags;
    }
    return node;
  }

  void open(Node node, Node::Kind kind) {
    if (static_cast<int64_t>(frames_.size()) >= kMaxRecipeDepth) {
      throw Fatal{node.position, fmt::format("values are nested more than {} levels deep", kMaxRecipeDepth)};
    }
    frames_.push_back({.node = std::move(node), .kind = kind, .key = std::nullopt});
  }

  void close() {
    Node node = std::move(frames_.back().node);
    frames_.pop_back();
    add(std::move(node));
  }

  void add(Node node) {
    if (frames_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.kind == Node::Kind::List) {
      const Position position = node.position;
      frame.node.entries.push_back({.key = {}, .position = position, .value = std::move(node)});
      return;
    }
    if (!frame.key) {
      frame.key = std::move(node);
      return;
    }
    frame.node.entries.push_back(make_entry(*frame.key, std::move(node)));
    frame.key.reset();
  }

  static NodeEntry make_entry(Node& key, Node value) {
    NodeEntry entry{.key = std::move(key.text), .position = key.position, .value = std::move(value)};
    std::string_view reason;
    if (key.kind == Node::Kind::Invalid) {
      reason = entry.key == kNoTags ? kNoTags : kNoAnchors;
      entry.key = "?";
    } else if (key.kind != Node::Kind::Scalar) {
      reason = kWordKeys;
      entry.key = "?";
    } else if (entry.key == "<<") {
      reason = kNoMerge;
    }
    if (!reason.empty()) {
      entry.value = Node{};
      entry.value.kind = Node::Kind::Invalid;
      entry.value.text = reason;
    }
    return entry;
  }

  std::string_view text_;
  Locator locator_;
  std::vector<Frame> frames_;
  Node root_;
  int64_t documents_ = 0;
};

// Reports what is wrong with the tree and removes later duplicates of a key, with dotted keys.
class TreeCheck {
 public:
  TreeCheck(std::string_view source_name, std::vector<Problem>& problems) : source_name_(source_name), problems_(problems) {}

  void run(Node& node, const std::string& key) {
    if (node.kind == Node::Kind::Map) {
      drop_duplicates(node, key);
    }
    for (std::size_t i = 0; i < node.entries.size(); ++i) {
      NodeEntry& entry = node.entries[i];
      const std::string child = join_key(key, node.kind == Node::Kind::List ? std::to_string(i) : entry.key);
      if (entry.value.kind == Node::Kind::Invalid) {
        report(entry.position, child, entry.value.text);
      } else {
        run(entry.value, child);
      }
    }
  }

  void report(const Position& position, std::string_view key, std::string message) {
    problems_.push_back({.file = std::string(source_name_),
                         .line = position.line,
                         .column = position.column,
                         .key = std::string(key),
                         .message = std::move(message)});
  }

 private:
  void drop_duplicates(Node& node, const std::string& key) {
    std::map<std::string, int32_t, std::less<>> first_line;
    std::erase_if(node.entries, [&](const NodeEntry& entry) {
      if (entry.key == "?") {
        return false;
      }
      const auto [first, fresh] = first_line.emplace(entry.key, entry.position.line);
      if (!fresh) {
        report(entry.position, join_key(key, entry.key),
               fmt::format("duplicate key; it was first given on line {}", first->second));
      }
      return !fresh;
    });
  }

  std::string_view source_name_;
  std::vector<Problem>& problems_;
};

}  // namespace

ParsedText parse_yaml(std::string_view text, int32_t source, std::string_view source_name) {
  ParsedText out;
  TreeCheck check(source_name, out.problems);
  if (const auto bad = find_bad_text(text)) {
    Locator locator(text, source);
    check.report(locator.at(bad->byte), "", bad->reason);
    return out;
  }
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  text.remove_prefix(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);

  TreeBuilder builder(text, source);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Fatal& fatal) {
    check.report(fatal.position, "", fatal.reason);
    return out;
  } catch (const YAML::Exception& error) {
    const SyntaxError explained = explain_syntax_error(text, error.mark.pos, error.msg);
    Locator locator(text, source);
    check.report(locator.at(explained.byte), "", explained.reason);
    return out;
  }
  out.root = builder.take_root();
  if (out.root->kind == Node::Kind::Invalid) {
    check.report(out.root->position, "", out.root->text);
  }
  check.run(*out.root, "");
  return out;
}

}  // namespace longhaul::config
