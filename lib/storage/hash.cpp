// See hash.h.
#include "storage/hash.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <new>
#include <vector>

#include "storage/descriptor.h"
#include "storage/io_error.h"

namespace longhaul {

namespace {
constexpr int64_t kReadBytes = 4 << 20;
}

uint64_t hash_bytes(std::span<const std::byte> bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

StreamingHash::StreamingHash() : state_(XXH3_createState()) {
  if (state_ == nullptr || XXH3_64bits_reset(state_.get()) == XXH_ERROR) {
    throw std::bad_alloc();
  }
}

void StreamingHash::update(std::span<const std::byte> bytes) noexcept {
  XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

uint64_t StreamingHash::digest() const noexcept { return XXH3_64bits_digest(state_.get()); }

void StreamingHash::Release::operator()(XXH3_state_s* state) const noexcept { XXH3_freeState(state); }

FileHash hash_file(const std::filesystem::path& path, ErrorKind kind) {
  return hash_file_range(path, 0, std::numeric_limits<int64_t>::max(), kind);
}

FileHash hash_file_range(const std::filesystem::path& path, int64_t offset, int64_t bytes, ErrorKind kind) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) {
    throw_io_error(kind, fmt::format("cannot open {}: {}", path.string(), describe_errno(errno)));
  }
  StreamingHash hash;
  FileHash result;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(bytes, kReadBytes)));
  while (result.bytes < bytes) {
    const auto wanted = static_cast<size_t>(std::min(bytes - result.bytes, kReadBytes));
    const ssize_t got = ::pread(file.number(), buffer.data(), wanted, offset + result.bytes);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      throw_io_error(kind, fmt::format("cannot read {}: {}", path.string(), describe_errno(errno)));
    }
    if (got == 0) {
      break;
    }
    hash.update(std::span(buffer.data(), static_cast<size_t>(got)));
    result.bytes += got;
  }
  result.hash = hash.digest();
  return result;
}

std::string hash_to_text(uint64_t hash) { return fmt::format("{:016x}", hash); }

uint64_t hash_from_text(std::string_view text, ErrorKind kind) {
  uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (error != std::errc{} || end != text.data() + text.size() || text.size() != 16) {
    throw_io_error(kind, fmt::format("\"{}\" is not a hash; wanted 16 hexadecimal digits", text));
  }
  return hash;
}

}  // namespace longhaul
