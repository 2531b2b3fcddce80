// The index half of Megatron's .bin/.idx pair. All numbers are little-endian and unaligned:
//
//   9 bytes "MMIDIDX\0\0" · u64 version 1 · u8 dtype · u64 sequences S · u64 boundaries D (= documents + 1)
//   i32[S] lengths in tokens · i64[S] byte pointers into .bin · i64[D] document boundaries as sequence numbers
//   (multimodal writers add i8[S] modes; accepted when all are 0, that is, text)
//
// .bin is the bare tokens. A document is the sequences between two boundaries; they lie one after the other, so a
// document is one run of tokens. Everything is checked at opening, which reads the index once (20 bytes a document).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "data/token_type.h"

namespace longhaul {

inline constexpr char kMegatronMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
inline constexpr uint64_t kMegatronVersion = 1;
inline constexpr int64_t kMegatronHeaderBytes = 34;

// Views into the mapped .idx.
struct MegatronIndex {
  TokenType type = TokenType::U16;
  int64_t num_sequences = 0;
  int64_t num_documents = 0;
  int64_t num_tokens = 0;
  const std::byte* pointers = nullptr;    // i64[num_sequences]
  const std::byte* boundaries = nullptr;  // i64[num_documents + 1]

  // The first token of `document`, counted from the start of .bin; num_tokens for document == num_documents.
  [[nodiscard]] int64_t document_begin(int64_t document) const;
};

// Checks all of the index against itself and against the size of .bin. DataError names the file, what is wrong and
// where; `path` is for messages only.
[[nodiscard]] MegatronIndex parse_megatron_index(std::span<const std::byte> idx, int64_t bin_bytes,
                                                 const std::filesystem::path& path);

}  // namespace longhaul
