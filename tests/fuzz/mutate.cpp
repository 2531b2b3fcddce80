// See mutate.h.
#include "fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

namespace longhaul {

namespace {

constexpr std::array<uint64_t, 12> kEdges{
    0, 1, 2, 0x7f, 0x80, 0xff, 0x7fffffff, 0x80000000, 0xffffffff, 0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff};
constexpr std::array<const char*, 14> kNumbers{"0",     "-1",  "1",     "2",    "9223372036854775807", "18446744073709551615", "1e400",
                                               "1e300", "0.5", "[1]",   "null", "4294967296",          "-9223372036854775808", "\"7\""};
constexpr std::array<const char*, 12> kTokens{"{", "}", "[", "]", ",", ":", "\"", "[[[[[[[[[[[[", "\\u0000", "\xff\xfe", "true", "{\"a\":"};

int64_t place(FuzzRandom& random, const std::string& bytes, int64_t header) {
  const auto size = static_cast<int64_t>(bytes.size());
  return draw(random, draw(random, 4) == 0 ? size : std::min(size, std::max<int64_t>(header, 1)));
}

void replace_number(FuzzRandom& random, std::string& bytes, size_t at) {
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const auto begin = std::find_if(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(), is_digit);
  const auto end = std::find_if_not(begin, bytes.end(), is_digit);
  bytes.replace(begin, end, kNumbers[static_cast<size_t>(draw(random, kNumbers.size()))]);
}

void mutate_once(FuzzRandom& random, std::string& bytes, int64_t header) {
  if (bytes.empty()) {
    bytes.push_back(static_cast<char>(random()));
    return;
  }
  const auto at = static_cast<size_t>(place(random, bytes, header));
  const size_t length = std::min(bytes.size() - at, static_cast<size_t>(1 + draw(random, draw(random, 3) == 0 ? 4096 : 24)));
  switch (draw(random, 11)) {
    case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << draw(random, 8))); break;
    case 1: bytes[at] = static_cast<char>(random()); break;
    case 2: {
      const uint64_t edge = kEdges[static_cast<size_t>(draw(random, kEdges.size()))];
      std::memcpy(bytes.data() + at, &edge, std::min<size_t>(bytes.size() - at, size_t{1} << draw(random, 4)));
      break;
    }
    case 3: bytes.resize(at); break;
    case 4: bytes.erase(at, length); break;
    case 5: bytes.insert(at, bytes.substr(at, length)); break;
    case 6: {
      const std::string piece = bytes.substr(static_cast<size_t>(place(random, bytes, header)), length);
      bytes.replace(at, std::min(piece.size(), bytes.size() - at), piece);
      break;
    }
    case 7: {
      const char value = static_cast<char>(draw(random, 2) == 0 ? 0 : random());
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), length, value);
      break;
    }
    case 8:
    case 9: replace_number(random, bytes, at); break;
    default: {
      const std::string token = kTokens[static_cast<size_t>(draw(random, kTokens.size()))];
      bytes.replace(at, draw(random, 2) == 0 ? 0 : std::min<size_t>(1, bytes.size() - at), token);
    }
  }
}

}  // namespace

void mutate(FuzzRandom& random, std::string& bytes, int64_t header) {
  for (int64_t changes = 1 + draw(random, draw(random, 2) == 0 ? 1 : 4); changes > 0; --changes) {
    mutate_once(random, bytes, header);
  }
}

}  // namespace longhaul
