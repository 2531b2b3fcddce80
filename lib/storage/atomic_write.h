// How a file or a directory comes into being all at once. Bytes go to a temporary name beside the target, reach the disk,
// and only then take the real name; a reader, or a restart after a power cut, sees the old content or the new, never a mix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

#include "base/error.h"
#include "storage/descriptor.h"

namespace longhaul {

// Called after bytes were handed to the system, with how many. Lets a test stop a save at any byte.
using WriteObserver = std::function<void(int64_t bytes)>;

// A file that is being written under PATH.tmp-PID. Errors are of the kind given.
class StagedFile {
 public:
  StagedFile(std::filesystem::path path, ErrorKind kind, WriteObserver observer = {});
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;
  // Removes the temporary file unless it was published.
  ~StagedFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  // Brings all to the disk, gives the file its name, replacing what was there, and syncs the directory. Once, and last.
  void publish();

  [[nodiscard]] int64_t bytes() const noexcept { return bytes_; }

 private:
  [[noreturn]] void fail(std::string_view action, int error) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  ErrorKind kind_;
  WriteObserver observer_;
  FileDescriptor file_;
  int64_t bytes_ = 0;
  bool is_published_ = false;
};

// A small text file, whole or not at all.
void write_text_atomically(const std::filesystem::path& path, std::string_view text, ErrorKind kind,
                           const WriteObserver& observer = {});

// The whole of a small file; an error of `kind` when it cannot be read or is larger than `max_bytes`.
[[nodiscard]] std::string read_text(const std::filesystem::path& path, ErrorKind kind, int64_t max_bytes = int64_t{1} << 30);

// Brings a file's bytes, or a directory's names, to the disk. A file system that has no fsync for it is not an error.
void sync_file(const std::filesystem::path& path, ErrorKind kind);
void sync_directory(const std::filesystem::path& path, ErrorKind kind);

// rename(2), then the sync of the directory that holds the new name.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to, ErrorKind kind);

}  // namespace longhaul
