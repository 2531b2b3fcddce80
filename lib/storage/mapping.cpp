// See mapping.h.
#include "storage/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "storage/descriptor.h"
#include "storage/io_error.h"

namespace longhaul {

ReadOnlyMapping::ReadOnlyMapping(const std::filesystem::path& path, ErrorKind kind) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) {
    throw_io_error(kind, fmt::format("cannot open {}: {}", path.string(), describe_errno(errno)));
  }
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) {
    throw_io_error(kind, fmt::format("cannot read the size of {}: {}", path.string(), describe_errno(errno)));
  }
  if (!S_ISREG(status.st_mode)) {
    throw_io_error(kind, fmt::format("{} is not a regular file", path.string()));
  }
  if (status.st_size == 0) {
    return;
  }
  void* address = ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (address == MAP_FAILED) {
    throw_io_error(kind, fmt::format("cannot map {} into memory: {}", path.string(), describe_errno(errno)));
  }
  data_ = static_cast<const std::byte*>(address);
  size_ = status.st_size;
}

ReadOnlyMapping::ReadOnlyMapping(ReadOnlyMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

ReadOnlyMapping& ReadOnlyMapping::operator=(ReadOnlyMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

ReadOnlyMapping::~ReadOnlyMapping() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
  }
}

}  // namespace longhaul
