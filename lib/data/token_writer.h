// Writes a Megatron .bin/.idx pair, document by document. Each document is one sequence of the index. Nothing is under
// its final name before all of it is on the disk; the index takes its name last, so a pair with an index is complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "data/atomic_file.h"
#include "data/token_type.h"

namespace longhaul {

class TokenFileWriter {
 public:
  // Writes PREFIX.bin and PREFIX.idx; the folder is made when missing. Tokens are stored as u16 when
  // vocab_size < 65500, else as i32, as Megatron does.
  TokenFileWriter(const std::filesystem::path& prefix, int64_t vocab_size);

  // DataError for a token outside the vocabulary (a u16 would wrap silently) or a document of 2^31 tokens or more.
  void add_document(std::span<const int32_t> tokens);
  // Completes both files. Without it, nothing is left behind.
  void finish();

  [[nodiscard]] int64_t num_documents() const noexcept { return static_cast<int64_t>(lengths_.size()); }
  [[nodiscard]] int64_t num_tokens() const noexcept { return num_tokens_; }
  [[nodiscard]] TokenType type() const noexcept { return type_; }

 private:
  AtomicFile bin_;
  AtomicFile idx_;
  int64_t vocab_size_;
  TokenType type_;
  std::vector<int32_t> lengths_;
  int64_t num_tokens_ = 0;
};

// The files of a prefix.
[[nodiscard]] std::filesystem::path bin_path(const std::filesystem::path& prefix);
[[nodiscard]] std::filesystem::path idx_path(const std::filesystem::path& prefix);

}  // namespace longhaul
