// A whole file mapped read-only into memory, so that a shard of many gigabytes costs what is read of it. A file must not
// be shortened while it is mapped: the kernel answers with SIGBUS, which no check at opening can prevent. Longhaul's own
// writers replace files and never cut them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/error.h"

namespace longhaul {

class ReadOnlyMapping {
 public:
  // An empty span.
  ReadOnlyMapping() = default;
  // Throws an error of `kind` when the file cannot be opened, is not a regular file, or cannot be mapped.
  ReadOnlyMapping(const std::filesystem::path& path, ErrorKind kind);
  ReadOnlyMapping(ReadOnlyMapping&& other) noexcept;
  ReadOnlyMapping& operator=(ReadOnlyMapping&& other) noexcept;
  ReadOnlyMapping(const ReadOnlyMapping&) = delete;
  ReadOnlyMapping& operator=(const ReadOnlyMapping&) = delete;
  ~ReadOnlyMapping();

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, static_cast<size_t>(size_)}; }
  [[nodiscard]] int64_t size() const noexcept { return size_; }

 private:
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace longhaul
