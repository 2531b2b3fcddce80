// See token_file.h.
#include "data/token_file.h"

#include <algorithm>

#include "base/error.h"

namespace longhaul {

namespace {

constexpr int64_t kSampledDocuments = 64;
constexpr int64_t kSampledTokens = 4096;  // at most, of each sampled document

// "data/corpus" for "data/corpus", "data/corpus.bin" and "data/corpus.idx".
[[nodiscard]] std::filesystem::path without_suffix(const std::filesystem::path& path) {
  const auto suffix = path.extension();
  return suffix == ".bin" || suffix == ".idx" ? std::filesystem::path(path).replace_extension() : path;
}

[[nodiscard]] std::filesystem::path with_suffix(std::filesystem::path path, const char* suffix) {
  path += suffix;  // not replace_extension: a prefix may hold a dot, "corpus.v2"
  return path;
}

}  // namespace

TokenFile TokenFile::open(const std::filesystem::path& path, const TokenFileOptions& options) {
  LH_CHECK(options.vocab_size > 0, "opening {} needs the size of the vocabulary, got {}", path.string(), options.vocab_size);
  TokenFile file;
  file.path_ = path.string();
  file.vocab_size_ = options.vocab_size;
  const auto prefix = without_suffix(path);
  const auto bin = with_suffix(prefix, ".bin");
  const auto idx = with_suffix(prefix, ".idx");
  if (std::filesystem::exists(idx)) {
    file.idx_ = MappedFile(idx);
    file.bin_ = MappedFile(bin);
    file.index_ = parse_megatron_index(file.idx_.bytes(), file.bin_.size(), idx);
    file.tokens_ = file.bin_.bytes().data();
    file.type_ = file.index_->type;
    file.num_tokens_ = file.index_->num_tokens;
    file.num_documents_ = file.index_->num_documents;
    file.fingerprint_ = combine(fingerprint_of(file.bin_.bytes()), fingerprint_of(file.idx_.bytes()));
  } else {
    const auto single = std::filesystem::is_regular_file(path) ? path : bin;
    if (!std::filesystem::exists(single)) {
      throw DataError("there is no token file {0}: neither {1} with {2} (Megatron) nor an llm.c .bin file; make one with prepare",
                      path.string(), bin.string(), idx.string());
    }
    file.bin_ = MappedFile(single);
    if (!looks_like_llmc(file.bin_.bytes())) {
      throw DataError("{} has no index {} beside it and does not start as an llm.c token file does", single.string(), idx.string());
    }
    LlmcTokens parsed = parse_llmc(file.bin_.bytes(), options.document_token, single);
    file.tokens_ = parsed.tokens;
    file.type_ = parsed.type;
    file.num_tokens_ = parsed.num_tokens;
    file.begins_ = std::move(parsed.document_begins);
    file.num_documents_ = static_cast<int64_t>(file.begins_.size()) - 1;
    file.fingerprint_ = fingerprint_of(file.bin_.bytes());
  }
  file.check_sample();
  return file;
}

int64_t TokenFile::document_begin(int64_t document) const {
  return index_ ? index_->document_begin(document) : begins_[static_cast<size_t>(document)];
}

int64_t TokenFile::document_length(int64_t document) const {
  LH_CHECK(document >= 0 && document < num_documents_, "{} has {} documents, asked for number {}", path_, num_documents_, document);
  return document_begin(document + 1) - document_begin(document);
}

void TokenFile::read(int64_t document, int64_t offset, std::span<int32_t> out) const {
  const int64_t length = document_length(document);
  const auto count = static_cast<int64_t>(out.size());
  LH_CHECK(offset >= 0 && count <= length && offset <= length - count, "document {} of {} has {} tokens, asked for {} from {}",
           document, path_, length, count, offset);
  const int64_t first = document_begin(document) + offset;
  dispatch_token_type(type_, [&]<class T>(T) {
    const std::byte* from = tokens_ + first * static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < count; ++i) {
      const auto token = static_cast<int64_t>(load_unaligned<T>(from + i * static_cast<int64_t>(sizeof(T))));
      if (token < 0 || token >= vocab_size_) [[unlikely]] {
        throw DataError("{}: document {} has the token {} at position {}, outside the vocabulary of {}; the corpus was made with"
                        " another tokenizer, or model.vocab_size is wrong",
                        path_, document, token, offset + i, vocab_size_);
      }
      out[static_cast<size_t>(i)] = static_cast<int32_t>(token);
    }
  });
}

std::vector<int32_t> TokenFile::read_document(int64_t document) const {
  std::vector<int32_t> tokens(static_cast<size_t>(document_length(document)));
  read(document, 0, tokens);
  return tokens;
}

void TokenFile::check_sample() const {
  std::vector<int32_t> tokens;
  const int64_t samples = std::min(num_documents_, kSampledDocuments);
  for (int64_t i = 0; i < samples; ++i) {
    // First and last document, and others evenly between.
    const int64_t document = samples == 1 ? 0 : i * (num_documents_ - 1) / (samples - 1);
    tokens.resize(static_cast<size_t>(std::min(document_length(document), kSampledTokens)));
    read(document, 0, tokens);
  }
}

}  // namespace longhaul
