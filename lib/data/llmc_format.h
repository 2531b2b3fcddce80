// Token files of llm.c: int32[256] header {magic, version, token count, ...}, then bare tokens.
//
//   magic 20240520, version 1: u16 tokens (GPT-2)      magic 20240801, version 7: u32 tokens (Llama 3)
//
// The files know no documents. llm.c's own tools write one token before every document (50256 for GPT-2, 128000 for
// Llama 3), so a document begins at each such token and holds it as its first token. Tokens before the first one, or a
// file without any, form a document too. Opening reads the whole file once to find them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "data/token_type.h"

namespace longhaul {

inline constexpr int64_t kLlmcHeaderBytes = 1024;

struct LlmcTokens {
  TokenType type = TokenType::U16;
  const std::byte* tokens = nullptr;
  int64_t num_tokens = 0;
  std::vector<int64_t> document_begins;  // [documents + 1], in tokens; the last is num_tokens
};

// Whether the content starts with a magic number of llm.c's token files, so that a damaged file is reported as such.
[[nodiscard]] bool looks_like_llmc(std::span<const std::byte> content) noexcept;

// `separator` replaces the format's own document token. DataError for anything that does not add up.
[[nodiscard]] LlmcTokens parse_llmc(std::span<const std::byte> content, std::optional<int64_t> separator,
                                    const std::filesystem::path& path);

}  // namespace longhaul
