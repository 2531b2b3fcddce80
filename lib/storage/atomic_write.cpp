// See atomic_write.h.
#include "storage/atomic_write.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/cast.h"
#include "storage/io_error.h"

namespace longhaul {

namespace {

constexpr size_t kWriteBytes = 64 << 20;  // one write(2) transfers less than 2 GiB anyway

void sync_descriptor(const FileDescriptor& file, const std::filesystem::path& path, ErrorKind kind) {
  if (::fsync(file.number()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    throw_io_error(kind, fmt::format("cannot bring {} to the disk: {}", path.string(), describe_errno(errno)));
  }
}

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

StagedFile::StagedFile(std::filesystem::path path, ErrorKind kind, WriteObserver observer)
    : path_(std::move(path)), temporary_(path_), kind_(kind), observer_(std::move(observer)) {
  temporary_ += fmt::format(".tmp-{}", ::getpid());
  file_ = FileDescriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file_.is_open()) {
    fail("create", errno);
  }
}

StagedFile::~StagedFile() {
  if (!is_published_) {
    std::error_code ignored;
    std::filesystem::remove(temporary_, ignored);
  }
}

void StagedFile::fail(std::string_view action, int error) const {
  throw_io_error(kind_, fmt::format("cannot {} {}: {}", action, temporary_.string(), describe_errno(error)));
}

void StagedFile::write(std::span<const std::byte> bytes) {
  LH_CHECK(file_.is_open(), "{} was written to after it was complete", path_.string());
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.number(), bytes.data(), std::min(bytes.size(), kWriteBytes));
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      fail("write", errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    bytes_ += written;
    if (observer_) {
      observer_(written);
    }
  }
}

void StagedFile::publish() {
  LH_CHECK(!is_published_, "{} can be published only once", path_.string());
  sync_descriptor(file_, temporary_, kind_);
  if (::close(file_.release()) != 0) {  // some network file systems report a failed write only here
    fail("close", errno);
  }
  rename_durably(temporary_, path_, kind_);
  is_published_ = true;
}

void write_text_atomically(const std::filesystem::path& path, std::string_view text, ErrorKind kind,
                           const WriteObserver& observer) {
  StagedFile file(path, kind, observer);
  file.write(text);
  file.publish();
}

std::string read_text(const std::filesystem::path& path, ErrorKind kind, int64_t max_bytes) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file.is_open() || ::fstat(file.number(), &status) != 0) {
    throw_io_error(kind, fmt::format("cannot read {}: {}", path.string(), describe_errno(errno)));
  }
  if (!S_ISREG(status.st_mode) || status.st_size > max_bytes) {
    throw_io_error(kind, fmt::format("{} is not a file of at most {} bytes", path.string(), max_bytes));
  }
  std::string text(narrow<size_t>(status.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(file.number(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      throw_io_error(kind, fmt::format("cannot read {}: {}", path.string(), got < 0 ? describe_errno(errno) : "it became shorter"));
    }
    done += static_cast<size_t>(got);
  }
  return text;
}

void sync_file(const std::filesystem::path& path, ErrorKind kind) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) {
    throw_io_error(kind, fmt::format("cannot open {}: {}", path.string(), describe_errno(errno)));
  }
  sync_descriptor(file, path, kind);
}

void sync_directory(const std::filesystem::path& path, ErrorKind kind) {
  const FileDescriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open()) {
    throw_io_error(kind, fmt::format("cannot open the directory {}: {}", path.string(), describe_errno(errno)));
  }
  sync_descriptor(directory, path, kind);
}

void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to, ErrorKind kind) {
  std::error_code failure;
  std::filesystem::rename(from, to, failure);
  if (failure) {
    throw_io_error(kind, fmt::format("cannot rename {} to {}: {}", from.string(), to.string(), describe_errno(failure.value())));
  }
  sync_directory(directory_of(to), kind);
}

}  // namespace longhaul
