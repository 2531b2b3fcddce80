// XXH3-64 of memory and files: fast enough to hash a checkpoint as it is written, and wide enough that an accidental
// change of bytes does not go unnoticed. It is no protection against intent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

struct XXH3_state_s;

namespace longhaul {

[[nodiscard]] uint64_t hash_bytes(std::span<const std::byte> bytes) noexcept;
[[nodiscard]] inline uint64_t hash_text(std::string_view text) noexcept {
  return hash_bytes(std::as_bytes(std::span(text.data(), text.size())));
}

// The hash of bytes that come in parts; equal to hash_bytes of all of them.
class StreamingHash {
 public:
  StreamingHash();
  void update(std::span<const std::byte> bytes) noexcept;
  [[nodiscard]] uint64_t digest() const noexcept;

 private:
  struct Release {
    void operator()(XXH3_state_s* state) const noexcept;
  };
  std::unique_ptr<XXH3_state_s, Release> state_;
};

struct FileHash {
  int64_t bytes = 0;
  uint64_t hash = 0;

  friend bool operator==(const FileHash&, const FileHash&) = default;
};
// Reads the whole file; an error of `kind` when that is not possible.
[[nodiscard]] FileHash hash_file(const std::filesystem::path& path, ErrorKind kind);
// Only `bytes` bytes from `offset` on, fewer where the file ends.
[[nodiscard]] FileHash hash_file_range(const std::filesystem::path& path, int64_t offset, int64_t bytes, ErrorKind kind);

// Sixteen hexadecimal digits, and back; an error of `kind` when the text is not of that form.
[[nodiscard]] std::string hash_to_text(uint64_t hash);
[[nodiscard]] uint64_t hash_from_text(std::string_view text, ErrorKind kind);

}  // namespace longhaul
