// See chunk_codec.h.
#include "storage/chunk_codec.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "base/cast.h"
#include "base/error.h"

namespace longhaul {

namespace {

// Weights and moments are exponents that few values share, and mantissas of noise: entropy coding gains all there is, and the search
// for matches only time and false ones. The shortest search (a table of 256 entries, matches of 7 bytes) took 1.2 GB/s for a fifth
// less, the level's own 0.5 GB/s for slightly more bytes; long runs of zeros are found by both.
constexpr int kLevel = 1;
constexpr int kHashLog = 8;
constexpr int kMinMatch = 7;

struct ReleaseContext {
  void operator()(ZSTD_CCtx* context) const noexcept { ZSTD_freeCCtx(context); }
};

std::unique_ptr<ZSTD_CCtx, ReleaseContext> make_context() {
  std::unique_ptr<ZSTD_CCtx, ReleaseContext> context(ZSTD_createCCtx());
  LH_CHECK(context != nullptr, "zstd has no memory for compressing");
  for (const auto& [parameter, value] :
       {std::pair(ZSTD_c_compressionLevel, kLevel), std::pair(ZSTD_c_hashLog, kHashLog), std::pair(ZSTD_c_minMatch, kMinMatch)}) {
    LH_CHECK(ZSTD_isError(ZSTD_CCtx_setParameter(context.get(), parameter, value)) == 0, "zstd refuses {} for parameter {}", value,
             static_cast<int>(parameter));
  }
  return context;
}

// Byte `b` of element `i` to place `b * elements + i`, as HDF5's shuffle filter does. In tiles that stay in the first cache, and by
// shifts of whole elements, so that the compiler makes registers of bytes from them.
template <class Word>
void shuffle(const std::byte* __restrict from, size_t elements, std::byte* __restrict to) {
  constexpr size_t kTile = 2048;
  std::array<Word, kTile> words;
  for (size_t begin = 0; begin < elements; begin += kTile) {
    const size_t count = std::min(kTile, elements - begin);
    std::memcpy(words.data(), from + begin * sizeof(Word), count * sizeof(Word));
    for (size_t b = 0; b < sizeof(Word); ++b) {
      for (size_t i = 0; i < count; ++i) {
        to[b * elements + begin + i] = static_cast<std::byte>(words[i] >> (8 * b));
      }
    }
  }
}

template <class Word>
void unshuffle(const std::byte* __restrict from, size_t elements, std::byte* __restrict to) {
  for (size_t i = 0; i < elements; ++i) {
    for (size_t b = 0; b < sizeof(Word); ++b) {
      to[i * sizeof(Word) + b] = from[b * elements + i];
    }
  }
}

template <class F>
void with_word(int64_t bytes, F&& f) {
  switch (bytes) {
    case 2: return f(uint16_t());
    case 4: return f(uint32_t());
    case 8: return f(uint64_t());
    default: throw InternalError("no tensor has elements of {} bytes", bytes);
  }
}

}  // namespace

int64_t encoded_bound(int64_t values_bytes) { return narrow<int64_t>(ZSTD_compressBound(narrow<size_t>(values_bytes))); }

int64_t compress_frame(std::span<const std::byte> source, std::span<std::byte> target) {
  const auto context = make_context();
  const size_t size = ZSTD_compress2(context.get(), target.data(), target.size(), source.data(), source.size());
  LH_CHECK(ZSTD_isError(size) == 0, "zstd cannot compress {} bytes: {}", source.size(), ZSTD_getErrorName(size));
  return narrow<int64_t>(size);
}

int64_t frame_content_bytes(std::span<const std::byte> source) {
  const unsigned long long size = ZSTD_getFrameContentSize(source.data(), source.size());
  constexpr unsigned long long kMost = 1ULL << 40;
  return size <= kMost ? static_cast<int64_t>(size) : -1;  // the codes for errors are the largest numbers
}

bool decompress_frame(std::span<const std::byte> source, std::span<std::byte> target) {
  return ZSTD_decompress(target.data(), target.size(), source.data(), source.size()) == target.size();
}

std::span<const std::byte> ChunkCodec::encode(std::span<const std::byte> values, int64_t element_bytes) {
  std::span<const std::byte> source = values;
  if (element_bytes > 1) {
    shuffled_.resize(values.size());
    with_word(element_bytes, [&](auto word) { shuffle<decltype(word)>(values.data(), values.size() / sizeof(word), shuffled_.data()); });
    source = shuffled_;
  }
  frame_.resize(std::max(frame_.size(), narrow<size_t>(encoded_bound(narrow<int64_t>(values.size())))));
  return std::span<const std::byte>(frame_).first(narrow<size_t>(compress_frame(source, frame_)));
}

void ChunkCodec::decode(std::span<const std::byte> stored, int64_t element_bytes, std::span<std::byte> values) {
  const bool is_shuffled = element_bytes > 1;
  if (is_shuffled) {
    shuffled_.resize(values.size());
  }
  if (!decompress_frame(stored, is_shuffled ? std::span<std::byte>(shuffled_) : values)) {
    throw CheckpointError("{} bytes are not a zstd frame of {} bytes", stored.size(), values.size());
  }
  if (is_shuffled) {
    with_word(element_bytes, [&](auto word) { unshuffle<decltype(word)>(shuffled_.data(), values.size() / sizeof(word), values.data()); });
  }
}

}  // namespace longhaul
