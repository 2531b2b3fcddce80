// See rank_file.h.
#include "checkpoint/rank_file.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>

#include "storage/hdf5.h"
#include "storage/io_error.h"

namespace longhaul {

namespace {

constexpr int64_t kHandOverBytes = 32 << 20;  // the disk works while the rest is still being copied and hashed

void validate(const Piece& piece) {
  const TensorView& data = piece.data;
  LH_CHECK(!piece.name.empty() && !piece.name.starts_with('/') && !piece.name.ends_with('/') &&
               piece.name.find("//") == std::string::npos && piece.name.find('\0') == std::string::npos,
           "\"{}\" cannot name a tensor in a checkpoint", piece.name);
  LH_CHECK(data.is_present() && data.rank() == piece.global_shape.rank() &&
               narrow<int>(piece.offset.size()) == piece.global_shape.rank(),
           "the piece {} of \"{}\" does not fit into {}", data.to_string(), piece.name, piece.global_shape.to_string());
}

void add_parts(std::vector<FilePart>& parts, size_t number, const Piece& piece) {
  if (piece.data.bytes() == 0) {
    return;
  }
  int64_t element = 0;
  for_each_part(piece.data, Staging::kBytes, [&](const std::vector<int64_t>& offset, const TensorView& part) {
    parts.push_back({.piece = number, .first_element = element, .offset = offset, .data = part});
    element += part.numel();
  });
}

[[noreturn]] void fail(std::string_view action, const std::filesystem::path& path, int error) {
  throw_io_error(ErrorKind::Checkpoint, fmt::format("cannot {} {}: {}", action, path.string(), describe_errno(error)));
}

std::span<const std::byte> bytes_of(const TensorView& host) {
  return {static_cast<const std::byte*>(host.raw()), static_cast<size_t>(host.bytes())};
}

}  // namespace

RankFileWriter::RankFileWriter(std::filesystem::path path, std::span<const Piece> pieces, Compression compression, SaveProgress& progress)
    : path_(std::move(path)), pieces_(pieces), compression_(compression), progress_(progress) {
  std::map<std::string, int> count_of_name;
  for (size_t number = 0; number < pieces.size(); ++number) {
    const Piece& piece = pieces[number];
    validate(piece);
    add_parts(parts_, number, piece);
    const int count = count_of_name[piece.name]++;
    written_.push_back({.name = piece.name,
                        .whole = {piece.data.dtype(), piece.global_shape},
                        .stored = {.block = {.offset = piece.offset, .shape = piece.data.shape()},
                                   .file = path_.filename().string(),
                                   .dataset = count == 0 ? piece.name : fmt::format("{}#{}", piece.name, count),
                                   .hash = StreamingHash().digest()}});
  }
}

void RankFileWriter::create() {
  if (compression_ == Compression::Zstd) {
    int64_t bytes = 0;
    for (const FilePart& part : parts_) {
      bytes += part.data.bytes();
    }
    compressed_.emplace(path_, bytes);
    for (WrittenPiece& piece : written_) {
      if (piece.stored.block.shape.numel() == 0) {
        compressed_->begin_piece(piece.stored, piece.whole.dtype, {});
      }
    }
    return;
  }
  lay_out();
  file_ = FileDescriptor(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!file_.is_open()) {
    fail("open", path_, errno);
  }
  file_bytes_ = narrow<int64_t>(std::filesystem::file_size(path_));
  const bool has_space = file_bytes_ == 0 || ::fallocate(file_.number(), 0, 0, file_bytes_) == 0;
  if (!has_space && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {  // other errors: the file system has no such call
    fail(fmt::format("set {} bytes aside for", file_bytes_), path_, errno);
  }
  is_in_order_ = std::is_sorted(parts_.begin(), parts_.end(),
                                [&](const FilePart& a, const FilePart& b) { return offset_of(a) < offset_of(b); });
}

void RankFileWriter::lay_out() {
  hdf5::File file = hdf5::create_file(path_);
  for (WrittenPiece& piece : written_) {
    try {
      piece.stored.file_offset =
          hdf5::byte_offset(hdf5::create_dataset(file, piece.stored.dataset, {piece.whole.dtype, piece.stored.block.shape}));
    } catch (CheckpointError& error) {
      error.add_context(fmt::format("tensor {} of {}", piece.name, path_.string()));
      throw;
    }
  }
  file.close();
}

int64_t RankFileWriter::offset_of(const FilePart& part) const {
  return written_[part.piece].stored.file_offset + part.first_element * size_of(part.data.dtype());
}

void RankFileWriter::write_bytes(const FilePart& part, std::span<const std::byte> bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const int64_t at = offset_of(part) + static_cast<int64_t>(done);
    const ssize_t written = ::pwrite(file_.number(), bytes.data() + done, bytes.size() - done, at);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      fail(fmt::format("write tensor {} into", pieces_[part.piece].name), path_, written < 0 ? errno : EIO);
    }
    done += static_cast<size_t>(written);
  }
}

void RankFileWriter::write_compressed(const FilePart& part, const TensorView& host) {
  StoredPiece& stored = written_[part.piece].stored;
  try {
    if (part.first_element == 0) {
      compressed_->begin_piece(stored, host.dtype(), host.shape());
    }
    compressed_->add(stored, part.offset, host);
  } catch (CheckpointError& error) {
    error.add_context(fmt::format("tensor {} of {}", pieces_[part.piece].name, path_.string()));
    throw;
  }
}

void RankFileWriter::write_next(const TensorView& host) {
  LH_CHECK(next_part_ < parts_.size(), "{} has no part number {}", path_.string(), next_part_);
  const FilePart& part = parts_[next_part_];
  LH_CHECK(host.is_contiguous() && host.bytes() == part.data.bytes(), "part {} is {}, got {}", next_part_, part.data.to_string(),
           host.to_string());
  const std::span<const std::byte> bytes = bytes_of(host);
  if (compressed_) {
    write_compressed(part, host);
  } else {
    write_bytes(part, bytes);
    if (is_in_order_) {
      hash_in_order(offset_of(part), bytes);
    }
  }
  piece_hash_.update(bytes);
  ++next_part_;
  if (next_part_ == parts_.size() || parts_[next_part_].piece != part.piece) {
    written_[part.piece].stored.hash = piece_hash_.digest();
    piece_hash_ = StreamingHash();
  }
  progress_.wrote(host.bytes());
}

void RankFileWriter::hash_in_order(int64_t offset, std::span<const std::byte> bytes) {
  hash_until(offset);
  file_hash_.update(bytes);
  hashed_ = offset + narrow<int64_t>(bytes.size());
  if (hashed_ - handed_over_ >= kHandOverBytes) {
    ::sync_file_range(file_.number(), handed_over_, hashed_ - handed_over_, SYNC_FILE_RANGE_WRITE);  // a hint; errors are fsync's
    handed_over_ = hashed_;
  }
}

// What HDF5 wrote between the tensors.
void RankFileWriter::hash_until(int64_t end) {
  std::array<std::byte, 4096> buffer{};
  while (hashed_ < end) {
    const auto wanted = static_cast<size_t>(std::min<int64_t>(end - hashed_, narrow<int64_t>(buffer.size())));
    const ssize_t got = ::pread(file_.number(), buffer.data(), wanted, hashed_);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      fail("read back", path_, got < 0 ? errno : EIO);
    }
    file_hash_.update(std::span(buffer.data(), static_cast<size_t>(got)));
    hashed_ += got;
  }
}

WrittenFile RankFileWriter::finish() {
  LH_CHECK(next_part_ == parts_.size(), "{} of {} parts of {} are written", next_part_, parts_.size(), path_.string());
  if (compressed_) {
    const FileHash hash = compressed_->finish();
    compressed_.reset();
    return {.name = path_.filename().string(), .hash = hash, .pieces = std::move(written_)};
  }
  if (is_in_order_) {
    hash_until(file_bytes_);
  }
  // By the descriptor that wrote: it is told of every write that failed behind its back.
  if (::fsync(file_.number()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    fail("bring to the disk", path_, errno);
  }
  file_ = FileDescriptor();
  return {.name = path_.filename().string(),
          .hash = is_in_order_ ? FileHash{.bytes = file_bytes_, .hash = file_hash_.digest()} : hash_file(path_, ErrorKind::Checkpoint),
          .pieces = std::move(written_)};
}

WrittenFile write_rank_file(const std::filesystem::path& path, std::span<const Piece> pieces, Compression compression,
                            const DeviceTransfer& copy, SaveProgress& progress) {
  RankFileWriter writer(path, pieces, compression, progress);
  writer.create();
  Staging staging(copy);
  for (const FilePart& part : writer.parts()) {
    const PieceSource& source = pieces[part.piece].source;
    writer.write_next(source ? staging.fill_from(source, part.first_element, part.data) : staging.to_host(part.data));
  }
  return writer.finish();
}

}  // namespace longhaul
