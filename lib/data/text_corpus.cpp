// See text_corpus.h.
#include "data/text_corpus.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/mapped_file.h"

namespace longhaul {

namespace {

using DocumentFunction = std::function<void(std::string_view)>;

[[nodiscard]] bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\v\f") == std::string_view::npos; }

// Calls function(line, begin) for each line, without its line break; `begin` is its place in the content.
template <class Function>
void for_each_line(std::string_view content, Function&& function) {
  size_t begin = 0;
  while (begin < content.size()) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    function(content.substr(begin, end - begin), begin);
    begin = end + 1;
  }
}

void split_text(std::string_view content, std::string_view separator, const DocumentFunction& function) {
  if (separator.empty()) {
    function(content);
    return;
  }
  constexpr size_t kNone = std::string_view::npos;
  size_t begin = kNone;  // of the document that is open
  size_t end = 0;
  const auto close = [&] {
    if (begin != kNone) {
      function(content.substr(begin, end - begin));
    }
    begin = kNone;
  };
  for_each_line(content, [&](std::string_view line, size_t at) {
    const bool ends_in_return = line.ends_with('\r');
    const bool separates = separator == kBlankLine ? is_blank(line)
                                                   : (ends_in_return ? line.substr(0, line.size() - 1) : line) == separator;
    if (separates) {
      close();
      return;
    }
    begin = begin == kNone ? at : begin;
    end = at + line.size();
  });
  close();
}

void split_jsonl(std::string_view content, const std::filesystem::path& path, const DocumentFunction& function) {
  int64_t number = 0;
  for_each_line(content, [&](std::string_view line, size_t) {
    ++number;
    if (is_blank(line)) {
      return;
    }
    nlohmann::json object;
    try {
      object = nlohmann::json::parse(line.begin(), line.end());
    } catch (const nlohmann::json::exception& error) {
      throw DataError("{}:{}: not a line of JSON: {}", path.string(), number, error.what());
    }
    if (!object.is_object()) {
      throw DataError("{}:{}: expected an object like {{\"text\": \"...\"}}, got {}", path.string(), number, object.type_name());
    }
    const auto text = object.find("text");
    if (text == object.end()) {
      throw DataError("{}:{}: the object has no field \"text\"", path.string(), number);
    }
    if (!text->is_string()) {
      throw DataError("{}:{}: the field \"text\" must be a string, got {}", path.string(), number, text->type_name());
    }
    function(text->get_ref<const std::string&>());
  });
}

}  // namespace

void for_each_document(const CorpusOptions& options, const DocumentFunction& function) {
  for (const std::filesystem::path& path : options.inputs) {
    const MappedFile file(path);
    const std::string_view content(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    if (options.format == CorpusFormat::Jsonl) {
      split_jsonl(content, path, function);
    } else {
      split_text(content, options.document_separator, function);
    }
  }
}

}  // namespace longhaul
