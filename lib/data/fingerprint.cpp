// See fingerprint.h.
#include "data/fingerprint.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"

namespace longhaul {

namespace {
constexpr size_t kEdgeBytes = 64 * 1024;

template <class T>
[[nodiscard]] bool parse_whole(std::string_view text, T& value, int base) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return result.ec == std::errc{} && result.ptr == text.data() + text.size();
}
}  // namespace

Fingerprint fingerprint_of(std::span<const std::byte> content) {
  const auto head = content.first(std::min(kEdgeBytes, content.size()));
  const auto tail = content.last(std::min(kEdgeBytes, content.size()));
  const std::array<uint64_t, 2> hashes{XXH3_64bits(head.data(), head.size()), XXH3_64bits(tail.data(), tail.size())};
  return {.bytes = static_cast<int64_t>(content.size()), .hash = XXH3_64bits(hashes.data(), sizeof(hashes))};
}

Fingerprint combine(const Fingerprint& first, const Fingerprint& second) {
  const std::array<uint64_t, 4> parts{static_cast<uint64_t>(first.bytes), first.hash, static_cast<uint64_t>(second.bytes),
                                      second.hash};
  return {.bytes = first.bytes + second.bytes, .hash = XXH3_64bits(parts.data(), sizeof(parts))};
}

std::string to_string(const Fingerprint& fingerprint) {
  return fmt::format("{}:{:016x}", fingerprint.bytes, fingerprint.hash);
}

Fingerprint parse_fingerprint(std::string_view text) {
  Fingerprint result;
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || text.size() != colon + 17 || !parse_whole(text.substr(0, colon), result.bytes, 10) ||
      !parse_whole(text.substr(colon + 1), result.hash, 16)) {
    throw CheckpointError("\"{}\" is not a data fingerprint; expected SIZE:HASH with 16 hexadecimal digits", text);
  }
  return result;
}

}  // namespace longhaul
