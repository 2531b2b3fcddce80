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

void add_parts(std::vector<FilePart>& parts, size_t number, const Piece& piece, int64_t file_offset) {
  if (piece.data.bytes() == 0) {
    return;
  }
  int64_t element = 0;
  for_each_part(piece.data, Staging::kBytes, [&](const std::vector<int64_t>&, const TensorView& part) {
    parts.push_back({.piece = number, .first_element = element, .data = part,
                     .file_offset = file_offset + element * size_of(part.dtype())});
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

RankFileLayout create_rank_file(const std::filesystem::path& path, std::span<const Piece> pieces) {
  RankFileLayout layout{.path = path};
  const std::string file_name = path.filename().string();
  hdf5::File file = hdf5::create_file(path);
  std::map<std::string, int> count_of_name;
  for (const Piece& piece : pieces) {
    validate(piece);
    const int count = count_of_name[piece.name]++;
    const std::string dataset_name = count == 0 ? piece.name : fmt::format("{}#{}", piece.name, count);
    StoredPiece stored{.block = {.offset = piece.offset, .shape = piece.data.shape()}, .file = file_name, .dataset = dataset_name,
                       .hash = StreamingHash().digest()};
    try {
      stored.file_offset = hdf5::byte_offset(hdf5::create_dataset(file, dataset_name, piece.data.spec()));
    } catch (CheckpointError& error) {
      error.add_context(fmt::format("tensor {} of {}", piece.name, path.string()));
      throw;
    }
    add_parts(layout.parts, layout.pieces.size(), piece, stored.file_offset);
    layout.pieces.push_back({.name = piece.name, .whole = {piece.data.dtype(), piece.global_shape}, .stored = std::move(stored)});
  }
  file.close();
  std::sort(layout.parts.begin(), layout.parts.end(), [](const FilePart& a, const FilePart& b) { return a.file_offset < b.file_offset; });
  return layout;
}

RankFileWriter::RankFileWriter(RankFileLayout layout, SaveProgress& progress)
    : layout_(std::move(layout)), progress_(progress), file_(::open(layout_.path.c_str(), O_RDWR | O_CLOEXEC)) {
  if (!file_.is_open()) {
    fail("open", layout_.path, errno);
  }
  file_bytes_ = narrow<int64_t>(std::filesystem::file_size(layout_.path));
  const bool has_space = file_bytes_ == 0 || ::fallocate(file_.number(), 0, 0, file_bytes_) == 0;
  if (!has_space && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {  // other errors: the file system has no such call
    fail(fmt::format("set {} bytes aside for", file_bytes_), layout_.path, errno);
  }
}

void RankFileWriter::write_next(const TensorView& host) {
  LH_CHECK(next_part_ < layout_.parts.size(), "{} has no part number {}", layout_.path.string(), next_part_);
  const FilePart& part = layout_.parts[next_part_];
  LH_CHECK(host.is_contiguous() && host.bytes() == part.data.bytes(), "part {} is {}, got {}", next_part_, part.data.to_string(),
           host.to_string());
  const std::span<const std::byte> bytes = bytes_of(host);
  for (size_t done = 0; done < bytes.size();) {
    const int64_t at = part.file_offset + static_cast<int64_t>(done);
    const ssize_t written = ::pwrite(file_.number(), bytes.data() + done, bytes.size() - done, at);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      fail(fmt::format("write tensor {} into", layout_.pieces[part.piece].name), layout_.path, written < 0 ? errno : EIO);
    }
    done += static_cast<size_t>(written);
  }
  hash_until(part.file_offset);
  file_hash_.update(bytes);
  piece_hash_.update(bytes);
  hashed_ = part.file_offset + host.bytes();
  ++next_part_;
  if (next_part_ == layout_.parts.size() || layout_.parts[next_part_].piece != part.piece) {
    layout_.pieces[part.piece].stored.hash = piece_hash_.digest();
    piece_hash_ = StreamingHash();
  }
  if (hashed_ - handed_over_ >= kHandOverBytes) {
    ::sync_file_range(file_.number(), handed_over_, hashed_ - handed_over_, SYNC_FILE_RANGE_WRITE);  // a hint; errors are fsync's
    handed_over_ = hashed_;
  }
  progress_.wrote(host.bytes());
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
      fail("read back", layout_.path, got < 0 ? errno : EIO);
    }
    file_hash_.update(std::span(buffer.data(), static_cast<size_t>(got)));
    hashed_ += got;
  }
}

WrittenFile RankFileWriter::finish() {
  LH_CHECK(next_part_ == layout_.parts.size(), "{} of {} parts of {} are written", next_part_, layout_.parts.size(),
           layout_.path.string());
  hash_until(file_bytes_);
  // By the descriptor that wrote: it is told of every write that failed behind its back.
  if (::fsync(file_.number()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    fail("bring to the disk", layout_.path, errno);
  }
  file_ = FileDescriptor();
  return {.name = layout_.path.filename().string(),
          .hash = {.bytes = file_bytes_, .hash = file_hash_.digest()},
          .pieces = std::move(layout_.pieces)};
}

WrittenFile write_rank_file(const std::filesystem::path& path, std::span<const Piece> pieces, const DeviceTransfer& copy,
                            SaveProgress& progress) {
  RankFileWriter writer(create_rank_file(path, pieces), progress);
  Staging staging(copy);
  for (const FilePart& part : writer.parts()) {
    const PieceSource& source = pieces[part.piece].source;
    writer.write_next(source ? staging.fill_from(source, part.first_element, part.data) : staging.to_host(part.data));
  }
  return writer.finish();
}

}  // namespace longhaul
