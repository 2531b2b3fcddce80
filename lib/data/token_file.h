// One tokenised corpus, read-only: documents that are runs of tokens. The same interface reads Megatron .bin/.idx pairs
// and llm.c .bin files (megatron_format.h, llmc_format.h), mapped into memory, so that opening costs no copy and asking
// for a document's length touches no token.
//
// Every token is checked against the vocabulary when it is read, and a sample of the documents when the file is opened:
// a token outside the vocabulary would index past the end of the embedding table, far from its cause.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/fingerprint.h"
#include "data/llmc_format.h"
#include "data/mapped_file.h"
#include "data/megatron_format.h"
#include "data/token_type.h"

namespace longhaul {

struct TokenFileOptions {
  int64_t vocab_size = 0;                        // tokens must be in [0, vocab_size)
  std::optional<int64_t> document_token = {};    // llm.c only: the token that begins a document, if not the usual one
};

class TokenFile {
 public:
  // `path` is a Megatron prefix ("data/corpus" for data/corpus.bin and data/corpus.idx; either suffix may be given) or
  // an llm.c file (with or without ".bin"). DataError for a file that is missing, truncated, of another format or
  // version, whose sizes do not add up, or that holds a token outside the vocabulary among those sampled.
  [[nodiscard]] static TokenFile open(const std::filesystem::path& path, const TokenFileOptions& options);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] TokenType type() const noexcept { return type_; }
  [[nodiscard]] int64_t num_tokens() const noexcept { return num_tokens_; }
  [[nodiscard]] int64_t num_documents() const noexcept { return num_documents_; }
  [[nodiscard]] int64_t vocab_size() const noexcept { return vocab_size_; }
  [[nodiscard]] const Fingerprint& fingerprint() const noexcept { return fingerprint_; }

  // In tokens; may be 0.
  [[nodiscard]] int64_t document_length(int64_t document) const;
  // Copies out.size() tokens of `document` from token `offset` of it. The range must lie inside the document. DataError
  // names file, document and position of a token outside the vocabulary.
  void read(int64_t document, int64_t offset, std::span<int32_t> out) const;
  [[nodiscard]] std::vector<int32_t> read_document(int64_t document) const;

 private:
  TokenFile() = default;
  [[nodiscard]] int64_t document_begin(int64_t document) const;
  void check_sample() const;

  std::string path_;
  MappedFile bin_;
  MappedFile idx_;                      // empty for llm.c
  std::optional<MegatronIndex> index_;  // views into idx_
  std::vector<int64_t> begins_;         // llm.c: [documents + 1]
  const std::byte* tokens_ = nullptr;
  TokenType type_ = TokenType::U16;
  int64_t num_tokens_ = 0;
  int64_t num_documents_ = 0;
  int64_t vocab_size_ = 0;
  Fingerprint fingerprint_;
};

}  // namespace longhaul
