// A directory for the length of a scope, removed with all it holds.
#pragma once

#include <filesystem>

namespace longhaul {

class TemporaryDirectory {
 public:
  // Below the system's directory for temporary files.
  TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace longhaul
