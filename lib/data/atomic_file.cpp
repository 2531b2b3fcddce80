// See atomic_file.h.
#include "data/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace longhaul {

namespace {
constexpr size_t kBufferBytes = 1 << 20;
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  temporary_ = path_;
  temporary_ += fmt::format(".tmp-{}", ::getpid());
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    throw DataError("cannot create {}: {}", temporary_.string(), std::strerror(errno));
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  if (!is_published_) {
    std::error_code ignored;
    std::filesystem::remove(temporary_, ignored);
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (buffer_.size() >= kBufferBytes) {
    flush();
  }
}

void AtomicFile::flush() {
  LH_CHECK(descriptor_ >= 0, "{} was written to after it was complete", temporary_.string());
  size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t n = ::write(descriptor_, buffer_.data() + done, buffer_.size() - done);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      throw DataError("cannot write {}: {}", temporary_.string(), std::strerror(errno));
    }
    done += static_cast<size_t>(n);
  }
  buffer_.clear();
}

void AtomicFile::sync() {
  flush();
  // A file system without fsync (EINVAL) is not an error; a full or failing disk is.
  if (::fsync(descriptor_) != 0 && errno != EINVAL) {
    throw DataError("cannot bring {} to the disk: {}", temporary_.string(), std::strerror(errno));
  }
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    throw DataError("cannot close {}: {}", temporary_.string(), std::strerror(errno));
  }
}

void AtomicFile::publish() {
  LH_CHECK(descriptor_ < 0 && !is_published_, "{} must be synced once and published once", temporary_.string());
  std::error_code failure;
  std::filesystem::rename(temporary_, path_, failure);
  if (failure) {
    throw DataError("cannot rename {} to {}: {}", temporary_.string(), path_.string(), failure.message());
  }
  is_published_ = true;
  const auto folder = path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".");
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    ::fsync(fd);  // the new name survives a power cut; without it the old file would still be whole
    ::close(fd);
  }
}

}  // namespace longhaul
