// A directory for the length of a scope, removed with all it holds.
#pragma once

#include <filesystem>

namespace longhaul {

class TemporaryDirectory {
 public:
  // Below the system's directory for temporary files.
  TemporaryDirectory();
  explicit TemporaryDirectory(const std::filesystem::path& parent);
  // A directory in memory where there is one, else the system's: for tests that write hundreds of times and need not
  // wait for a disk.
  [[nodiscard]] static std::filesystem::path fast_parent();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace longhaul
