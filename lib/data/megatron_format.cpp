// See megatron_format.h.
#include "data/megatron_format.h"

#include <algorithm>
#include <cstring>

#include "base/cast.h"
#include "data/mapped_file.h"

namespace longhaul {

namespace {

[[nodiscard]] TokenType parse_type(uint8_t code, const std::filesystem::path& path) {
  switch (code) {
    case 1: return TokenType::U8;
    case 2: return TokenType::I8;
    case 3: return TokenType::I16;
    case 4: return TokenType::I32;
    case 5: return TokenType::I64;
    case 8: return TokenType::U16;
    case 6:
    case 7: throw DataError("{} stores floating-point values (dtype code {}), which are not tokens", path.string(), code);
    default: throw DataError("{} has the unknown dtype code {}; known are 1-5 and 8 (u8 i8 i16 i32 i64 u16)", path.string(), code);
  }
}

// Lengths are not negative and pointers are their running sum, from 0 to the size of .bin.
void check_sequences(const MegatronIndex& index, const std::byte* lengths, int64_t bin_bytes, const std::filesystem::path& path) {
  const int64_t token_bytes = bytes_of(index.type);
  int64_t expected = 0;
  for (int64_t i = 0; i < index.num_sequences; ++i) {
    const auto length = load_unaligned<int32_t>(lengths + 4 * i);
    const auto pointer = load_unaligned<int64_t>(index.pointers + 8 * i);
    if (length < 0) {
      throw DataError("{}: sequence {} has the negative length {}", path.string(), i, length);
    }
    if (pointer != expected) {
      throw DataError("{}: sequence {} starts at byte {} of the .bin, but the sequences before it end at byte {}", path.string(),
                      i, pointer, expected);
    }
    expected += length * token_bytes;  // at most 2^31 * 8 a sequence, and compared with the pointer every time
    if (expected > bin_bytes) {
      break;
    }
  }
  if (expected != bin_bytes) {
    throw DataError("{} describes {} bytes of tokens{}, but the .bin beside it has {}; one of the two is truncated or of another"
                    " corpus",
                    path.string(), expected, expected > bin_bytes ? " or more" : "", bin_bytes);
  }
}

void check_boundaries(const MegatronIndex& index, const std::filesystem::path& path) {
  int64_t previous = 0;
  for (int64_t d = 0; d <= index.num_documents; ++d) {
    const auto boundary = load_unaligned<int64_t>(index.boundaries + 8 * d);
    if ((d == 0 && boundary != 0) || boundary < previous || boundary > index.num_sequences) {
      throw DataError("{}: document {} starts at sequence {}; boundaries must start at 0, never fall, and stay within {} sequences",
                      path.string(), d, boundary, index.num_sequences);
    }
    previous = boundary;
  }
  if (previous != index.num_sequences) {
    throw DataError("{}: the documents end at sequence {} of {}; the last sequences belong to no document", path.string(), previous,
                    index.num_sequences);
  }
}

}  // namespace

int64_t MegatronIndex::document_begin(int64_t document) const {
  const auto sequence = load_unaligned<int64_t>(boundaries + 8 * document);
  return sequence == num_sequences ? num_tokens : load_unaligned<int64_t>(pointers + 8 * sequence) / bytes_of(type);
}

MegatronIndex parse_megatron_index(std::span<const std::byte> idx, int64_t bin_bytes, const std::filesystem::path& path) {
  const auto size = static_cast<int64_t>(idx.size());
  const std::byte* data = idx.data();
  if (size < kMegatronHeaderBytes) {
    throw DataError("{} has {} bytes; a Megatron index has a header of {}", path.string(), size, kMegatronHeaderBytes);
  }
  if (std::memcmp(data, kMegatronMagic, sizeof(kMegatronMagic)) != 0) {
    throw DataError("{} does not start with MMIDIDX, so it is not a Megatron index (the version 1 format)", path.string());
  }
  if (const auto version = load_unaligned<uint64_t>(data + 9); version != kMegatronVersion) {
    throw DataError("{} is a Megatron index of version {}; version {} is supported", path.string(), version, kMegatronVersion);
  }
  MegatronIndex index{.type = parse_type(load_unaligned<uint8_t>(data + 17), path)};
  const auto sequences = load_unaligned<uint64_t>(data + 18);
  const auto boundaries = load_unaligned<uint64_t>(data + 26);
  // Bounded first, so that the sums below cannot overflow.
  const auto limit = static_cast<uint64_t>(size);
  if (sequences > limit || boundaries > limit || boundaries == 0) {
    throw DataError("{} claims {} sequences and {} document boundaries, which a file of {} bytes cannot hold", path.string(),
                    sequences, boundaries, size);
  }
  index.num_sequences = narrow<int64_t>(sequences);
  index.num_documents = narrow<int64_t>(boundaries) - 1;
  const int64_t expected = kMegatronHeaderBytes + 12 * index.num_sequences + 8 * (index.num_documents + 1);
  const bool has_modes = size == expected + index.num_sequences;
  if (size != expected && !has_modes) {
    throw DataError("{} has {} bytes, but {} sequences and {} documents take {}; the file is truncated or damaged", path.string(),
                    size, index.num_sequences, index.num_documents, expected);
  }
  const auto modes = idx.subspan(static_cast<size_t>(expected));
  if (std::any_of(modes.begin(), modes.end(), [](std::byte mode) { return mode != std::byte{0}; })) {
    throw DataError("{} has multimodal sequences; only text is supported", path.string());
  }
  const std::byte* lengths = data + kMegatronHeaderBytes;
  index.pointers = lengths + 4 * index.num_sequences;
  index.boundaries = index.pointers + 8 * index.num_sequences;
  if (bin_bytes % bytes_of(index.type) != 0) {
    throw DataError("the .bin of {} has {} bytes, which is not a whole number of {} tokens", path.string(), bin_bytes,
                    to_string(index.type));
  }
  check_sequences(index, lengths, bin_bytes, path);
  check_boundaries(index, path);
  index.num_tokens = bin_bytes / bytes_of(index.type);
  return index;
}

}  // namespace longhaul
