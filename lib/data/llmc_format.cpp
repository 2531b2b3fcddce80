// See llmc_format.h.
#include "data/llmc_format.h"

#include <array>

#include "data/mapped_file.h"

namespace longhaul {

namespace {

struct Flavour {
  int32_t magic;
  int32_t version;
  TokenType type;
  int64_t separator;
};
constexpr std::array<Flavour, 2> kFlavours{{{20240520, 1, TokenType::U16, 50256}, {20240801, 7, TokenType::U32, 128000}}};
constexpr int32_t kEvaluationMagic = 20240522;

template <class T>
[[nodiscard]] std::vector<int64_t> find_documents(const std::byte* tokens, int64_t num_tokens, int64_t separator) {
  std::vector<int64_t> begins;
  for (int64_t i = 0; i < num_tokens; ++i) {
    const auto token = static_cast<int64_t>(load_unaligned<T>(tokens + static_cast<int64_t>(sizeof(T)) * i));
    if (i == 0 || token == separator) {
      begins.push_back(i);
    }
  }
  begins.push_back(num_tokens);
  return begins;
}

}  // namespace

bool looks_like_llmc(std::span<const std::byte> content) noexcept {
  if (content.size() < 4) {
    return false;
  }
  const auto magic = load_unaligned<int32_t>(content.data());
  return magic == kFlavours[0].magic || magic == kFlavours[1].magic || magic == kEvaluationMagic;
}

LlmcTokens parse_llmc(std::span<const std::byte> content, std::optional<int64_t> separator, const std::filesystem::path& path) {
  const auto size = static_cast<int64_t>(content.size());
  if (size < kLlmcHeaderBytes) {
    throw DataError("{} has {} bytes; an llm.c token file has a header of {}", path.string(), size, kLlmcHeaderBytes);
  }
  const auto magic = load_unaligned<int32_t>(content.data());
  const auto version = load_unaligned<int32_t>(content.data() + 4);
  const auto count = static_cast<int64_t>(load_unaligned<int32_t>(content.data() + 8));
  if (magic == kEvaluationMagic) {
    throw DataError("{} is an llm.c evaluation file, not a stream of tokens", path.string());
  }
  for (const Flavour& flavour : kFlavours) {
    if (flavour.magic != magic) {
      continue;
    }
    if (version != flavour.version) {
      throw DataError("{} is an llm.c token file ({}) of version {}; version {} is supported", path.string(), magic, version,
                      flavour.version);
    }
    const int64_t expected = kLlmcHeaderBytes + count * bytes_of(flavour.type);
    if (count < 0 || size != expected) {
      throw DataError("{} has {} bytes, but its header claims {} tokens ({} bytes); the file is truncated or damaged", path.string(),
                      size, count, expected);
    }
    LlmcTokens result{.type = flavour.type, .tokens = content.data() + kLlmcHeaderBytes, .num_tokens = count};
    const int64_t document_token = separator.value_or(flavour.separator);
    result.document_begins = flavour.type == TokenType::U16 ? find_documents<uint16_t>(result.tokens, count, document_token)
                                                            : find_documents<uint32_t>(result.tokens, count, document_token);
    return result;
  }
  throw DataError("{} starts with the number {}, which is no llm.c token file (20240520 or 20240801)", path.string(), magic);
}

}  // namespace longhaul
