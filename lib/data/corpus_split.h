// Which documents of a corpus are held out for validation: a pure function of the documents' lengths and the fraction.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace longhaul {

struct CorpusSplit {
  std::vector<bool> is_validation;  // [documents]
  int64_t cut_document = -1;        // the one document that gives its tail to validation; -1 for none
  int64_t cut_bytes = 0;            // wanted length of that tail
};

// Draws whole documents in a fixed shuffled order until they hold `fraction` of the bytes, passing over those that would
// take the share beyond one and a half times. Where whole documents cannot come near (a corpus of one document, or of
// few long ones), the longest document is cut and its tail is held out instead. `fraction` is in (0, 0.5].
[[nodiscard]] CorpusSplit split_corpus(std::span<const int64_t> document_bytes, double fraction);

// Where to cut `text` so that about `tail_bytes` remain behind: after the first paragraph end (blank line), else line
// end, in the first half of the wanted tail, else between two UTF-8 characters. 0 < result < text.size(), which needs
// two bytes of text; DataError when there are fewer.
[[nodiscard]] int64_t find_cut(std::string_view text, int64_t tail_bytes);

}  // namespace longhaul
