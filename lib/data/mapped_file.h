// A whole file mapped read-only into memory. Token files are far larger than what a rank reads of them, and every rank
// of a node shares one copy in the page cache. A file must not be shortened while it is mapped: the kernel would answer
// with SIGBUS, which no check at opening can prevent; Longhaul's own writer replaces files and never cuts them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>

namespace longhaul {

class MappedFile {
 public:
  // An empty span.
  MappedFile() = default;
  // DataError when the file cannot be opened, is not a regular file, or cannot be mapped. An empty file is fine.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, static_cast<size_t>(size_)}; }
  [[nodiscard]] int64_t size() const noexcept { return size_; }

 private:
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

// A number at any address: the arrays of an .idx file are not aligned. Files are little-endian, as are all our targets.
template <class T>
[[nodiscard]] T load_unaligned(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

}  // namespace longhaul
