// See byte_tokenizer.h.
#include "data/byte_tokenizer.h"

#include "base/error.h"

namespace longhaul {

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) {
  std::vector<int32_t> tokens(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    tokens[i] = static_cast<unsigned char>(text[i]);
  }
  return tokens;
}

void ByteTokenizer::encode_document(std::string_view text, std::vector<int32_t>& tokens) {
  tokens.resize(text.size() + 1);
  for (size_t i = 0; i < text.size(); ++i) {
    tokens[i] = static_cast<unsigned char>(text[i]);
  }
  tokens.back() = kEndOfDocument;
}

std::string ByteTokenizer::decode(std::span<const int32_t> tokens) {
  std::string text;
  text.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= kVocabSize) {
      throw DataError("the byte tokenizer has tokens 0 to 256, but token {} at position {} was to be decoded", tokens[i], i);
    }
    if (tokens[i] != kEndOfDocument) {
      text.push_back(static_cast<char>(tokens[i]));
    }
  }
  return text;
}

}  // namespace longhaul
