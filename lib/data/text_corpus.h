// Raw text as a list of documents, for `prepare`. Two formats:
//
//   text    one document a file, or several a file that are separated by blank lines or by a line of the user's choice
//   jsonl   one JSON object a line; its string field "text" is a document
//
// Text is bytes: it is neither normalised nor checked for UTF-8 (JSON must be UTF-8 by itself). Lines that separate, and
// the line break before them, belong to no document.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.h"

namespace longhaul {

enum class CorpusFormat { Text, Jsonl };
constexpr EnumNames<CorpusFormat, 2> enum_names(CorpusFormat) {
  return {{{CorpusFormat::Text, "text"}, {CorpusFormat::Jsonl, "jsonl"}}};
}

// The separator that stands for one or more lines of white space.
inline constexpr std::string_view kBlankLine = "blank-line";

struct CorpusOptions {
  std::vector<std::filesystem::path> inputs;
  CorpusFormat format = CorpusFormat::Text;
  std::string document_separator;  // text only: empty, kBlankLine, or the text of a separating line
};

// Calls `function` with each document in the order of the inputs; the text lives during the call. Empty documents are
// included. DataError for a file that cannot be read and, as file:line, for a line that is no JSON object with "text".
void for_each_document(const CorpusOptions& options, const std::function<void(std::string_view)>& function);

}  // namespace longhaul
