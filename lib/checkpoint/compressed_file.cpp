// See compressed_file.h.
#include "checkpoint/compressed_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "storage/atomic_write.h"
#include "storage/io_error.h"

namespace longhaul {

namespace {

constexpr int64_t kHandOverBytes = 32 << 20;
constexpr int64_t kSmall = 4096;  // bytes; a chunk's entry in the file would cost what it saves

}  // namespace

CompressedFile::CompressedFile(std::filesystem::path path, int64_t values_bytes)
    : path_(std::move(path)), file_(hdf5::create_file(path_)) {
  descriptor_ = FileDescriptor(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!descriptor_.is_open()) {
    throw_io_error(ErrorKind::Checkpoint, fmt::format("cannot open {}: {}", path_.string(), describe_errno(errno)));
  }
  // Beyond the end of the file, where HDF5 will write; finish() gives back the rest.
  const bool has_space = values_bytes == 0 || ::fallocate(descriptor_.number(), FALLOC_FL_KEEP_SIZE, 0, values_bytes) == 0;
  if (!has_space && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
    throw_io_error(ErrorKind::Checkpoint,
                   fmt::format("cannot set {} bytes aside for {}: {}", values_bytes, path_.string(), describe_errno(errno)));
  }
}

void CompressedFile::begin_piece(StoredPiece& stored, DType dtype, const Shape& chunk) {
  const TensorSpec spec{dtype, stored.block.shape};
  const bool is_small = spec.shape.rank() == 0 || spec.shape.numel() * size_of(dtype) < kSmall;
  dataset_ = hdf5::Dataset();
  if (is_small) {
    dataset_ = hdf5::create_dataset(file_, stored.dataset, spec);
    stored.file_offset = hdf5::byte_offset(dataset_);
    chunk_ = Shape();
    return;
  }
  dataset_ = hdf5::create_compressed_dataset(file_, stored.dataset, spec, chunk);
  chunk_ = chunk;
  stored.chunk_shape = chunk;
}

void CompressedFile::add(StoredPiece& stored, std::span<const int64_t> offset, const TensorView& part) {
  if (stored.chunk_shape.rank() == 0) {
    hdf5::write_block(dataset_, offset, part);
    return;
  }
  std::span<const std::byte> values(static_cast<const std::byte*>(part.raw()), static_cast<size_t>(part.bytes()));
  const int64_t whole = chunk_.numel() * size_of(part.dtype());
  if (part.bytes() < whole) {  // the last one: HDF5's chunks are all of one size, and a part is the front of its chunk
    padded_.assign(static_cast<size_t>(whole), std::byte{0});
    std::memcpy(padded_.data(), values.data(), values.size());
    values = padded_;
  }
  const std::span<const std::byte> encoded = codec_.encode(values, size_of(part.dtype()));
  const hdf5::FilePlace place = hdf5::write_chunk(dataset_, offset, encoded);
  const int64_t end = place.file_offset + place.bytes;
  if (end - handed_over_ >= kHandOverBytes) {  // the disk works while the rest is being compressed; errors are fsync's
    ::sync_file_range(descriptor_.number(), handed_over_, end - handed_over_, SYNC_FILE_RANGE_WRITE);
    handed_over_ = end;
  }
  stored.chunks.push_back({.file_offset = place.file_offset, .bytes = place.bytes, .hash = hash_bytes(encoded)});
}

FileHash CompressedFile::finish() {
  dataset_.close();
  file_.close();
  const auto size = static_cast<off_t>(std::filesystem::file_size(path_));
  if (::ftruncate(descriptor_.number(), size) != 0) {
    throw_io_error(ErrorKind::Checkpoint, fmt::format("cannot end {} at {} bytes: {}", path_.string(), size, describe_errno(errno)));
  }
  if (::fsync(descriptor_.number()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    throw_io_error(ErrorKind::Checkpoint, fmt::format("cannot bring {} to the disk: {}", path_.string(), describe_errno(errno)));
  }
  return hash_file(path_, ErrorKind::Checkpoint);
}

}  // namespace longhaul
