// The byte tokenizer: token i is byte i for i in 0..255, and 256 ends a document. It needs no file, loses nothing and
// makes a corpus of any language, which is what tests, the quickstart and small studies want.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

struct ByteTokenizer {
  static constexpr std::string_view kName = "bytes";
  static constexpr int64_t kVocabSize = 257;
  static constexpr int32_t kEndOfDocument = 256;

  // The bytes of `text`; no end-of-document token is added.
  [[nodiscard]] static std::vector<int32_t> encode(std::string_view text);
  // The bytes of `text` followed by the end-of-document token, written over `tokens` (whose memory is reused).
  static void encode_document(std::string_view text, std::vector<int32_t>& tokens);
  // The inverse of encode. End-of-document tokens decode to nothing. DataError for a token outside 0..256.
  [[nodiscard]] static std::string decode(std::span<const int32_t> tokens);
};

}  // namespace longhaul
