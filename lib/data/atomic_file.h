// Writes a file that is either complete under its name or not there: the bytes go to a temporary name in the same
// folder, reach the disk, and only then take the real name. Written files of several parts sync() all of them first and
// publish() them in an order in which a reader never takes a half for the whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace longhaul {

class AtomicFile {
 public:
  // Opens PATH.tmp-PID beside `path`. DataError when that is not possible.
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  // Removes the temporary file unless it was published.
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  // All bytes are on the disk after this; nothing may be written any more.
  void sync();
  // Gives the file its name, replacing what was there, and syncs the folder. After sync().
  void publish();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void flush();

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::string buffer_;
  int descriptor_ = -1;
  bool is_published_ = false;
};

}  // namespace longhaul
