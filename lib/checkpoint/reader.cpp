// See reader.h.
#include "checkpoint/reader.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "checkpoint/directory_names.h"
#include "checkpoint/find.h"
#include "storage/io_error.h"

namespace longhaul {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxOpenFiles = 64;  // far below the usual limit of 1024 descriptors

const std::string& find_document(const JsonDocuments& documents, std::string_view name, std::string_view owner, const fs::path& path) {
  const auto it = documents.find(std::string(name));
  if (it == documents.end()) {
    throw CheckpointError("{} has no document \"{}\"{}; it cannot be resumed from", path.string(), name, owner);
  }
  return it->second;
}

// a - b for each dimension
std::vector<int64_t> minus(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> result(a.size());
  for (size_t d = 0; d < a.size(); ++d) {
    result[d] = a[d] - b[d];
  }
  return result;
}

}  // namespace

CheckpointReader::CheckpointReader(fs::path directory, DeviceTransfer copy) : directory_(std::move(directory)), staging_(copy) {
  const fs::path normal = fs::absolute(directory_).lexically_normal();
  const std::string name = (normal.has_filename() ? normal : normal.parent_path()).filename().string();
  if (strip_hidden(name, kInProgressSuffix)) {
    throw CheckpointError("{} is a save that did not finish; give a directory step_XXXXXXXX beside it", directory_.string());
  }
  manifest_ = read_manifest(directory_);
  if (const std::string reason = incomplete_reason(directory_, manifest_); !reason.empty()) {
    throw CheckpointError("{} is not a complete checkpoint: {}", directory_.string(), reason);
  }
}

const std::string& CheckpointReader::document(std::string_view name) const {
  return find_document(manifest_.documents, name, "", directory_);
}

const std::string& CheckpointReader::rank_document(int rank, std::string_view name) const {
  if (rank < 0 || rank >= num_ranks()) {
    throw CheckpointError("{} was saved by {} ranks; there are no documents of rank {}", directory_.string(), num_ranks(), rank);
  }
  return find_document(manifest_.rank_documents[static_cast<size_t>(rank)], name, fmt::format(" of rank {}", rank), directory_);
}

std::vector<std::string> CheckpointReader::damage(const std::string& file) const {
  const fs::path path = directory_ / file;
  const FileHash wanted = manifest_.files.at(file);
  const FileHash got = hash_file(path, ErrorKind::Checkpoint);
  if (got == wanted) {
    return {};
  }
  if (got.bytes != wanted.bytes) {
    return {fmt::format("{} has {} bytes, wanted {}", path.string(), got.bytes, wanted.bytes)};
  }
  std::vector<std::string> problems;
  for (const auto& [name, tensor] : manifest_.tensors) {
    for (const StoredPiece& piece : tensor.pieces) {
      if (piece.file != file) {
        continue;
      }
      for (const StoredChunk& chunk : piece.chunks) {
        const FileHash stored = hash_file_range(path, chunk.file_offset, chunk.bytes, ErrorKind::Checkpoint);
        if (stored != FileHash{.bytes = chunk.bytes, .hash = chunk.hash}) {
          problems.push_back(fmt::format("{} is damaged in tensor \"{}\", compressed bytes {} to {} of the file", path.string(), name,
                                         chunk.file_offset, chunk.file_offset + chunk.bytes));
        }
      }
      if (piece.file_offset < 0) {
        continue;
      }
      const int64_t bytes = piece.block.shape.numel() * size_of(tensor.spec.dtype);
      if (hash_file_range(path, piece.file_offset, bytes, ErrorKind::Checkpoint) != FileHash{.bytes = bytes, .hash = piece.hash}) {
        problems.push_back(fmt::format("{} is damaged in tensor \"{}\", bytes {} to {} of the file", path.string(), name,
                                       piece.file_offset, piece.file_offset + bytes));
      }
    }
  }
  if (problems.empty()) {
    problems.push_back(fmt::format("{} is damaged outside its tensors: its hash is {}, wanted {}", path.string(),
                                   hash_to_text(got.hash), hash_to_text(wanted.hash)));
  }
  return problems;
}

const FileDescriptor& CheckpointReader::open(const std::string& file) {
  const auto it = std::find_if(open_files_.begin(), open_files_.end(), [&](const auto& entry) { return entry.first == file; });
  if (it != open_files_.end()) {
    open_files_.splice(open_files_.begin(), open_files_, it);
    return open_files_.front().second;
  }
  if (open_files_.size() == kMaxOpenFiles) {
    open_files_.pop_back();
  }
  const fs::path path = directory_ / file;
  FileDescriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.is_open()) {
    throw_io_error(ErrorKind::Checkpoint, fmt::format("cannot open {}: {}", path.string(), describe_errno(errno)));
  }
  open_files_.emplace_front(file, std::move(opened));
  return open_files_.front().second;
}

void CheckpointReader::read_block(const StoredTensor& tensor, const Block& wanted, const TensorView& host) {
  for (const StoredPiece& piece : tensor.pieces) {
    Block shared;
    if (!intersect(piece.block, wanted, shared)) {
      continue;
    }
    const std::vector<int64_t> in_piece = minus(shared.offset, piece.block.offset);
    const std::vector<int64_t> in_host = minus(shared.offset, wanted.offset);
    try {
      if (!piece.chunks.empty()) {
        chunks_.read(open(piece.file), piece, {.offset = in_piece, .count = shared.shape, .destination_offset = in_host}, host);
        continue;
      }
      read_from_file(open(piece.file),
                     {.file_offset = piece.file_offset, .piece = piece.block.shape, .offset = in_piece, .count = shared.shape,
                      .destination_offset = in_host},
                     host);
    } catch (CheckpointError& error) {
      error.add_context(fmt::format("{} of {}", piece.dataset, (directory_ / piece.file).string()));
      throw;
    }
  }
}

void CheckpointReader::read(std::string_view name, std::span<const int64_t> offset, const TensorView& destination) {
  const auto it = manifest_.tensors.find(name);
  if (it == manifest_.tensors.end()) {
    throw CheckpointError("{} has no tensor \"{}\"", directory_.string(), name);
  }
  const StoredTensor& tensor = it->second;
  const Shape& whole = tensor.spec.shape;
  bool fits = destination.rank() == whole.rank() && static_cast<int>(offset.size()) == whole.rank();
  for (int d = 0; fits && d < whole.rank(); ++d) {
    const int64_t begin = offset[static_cast<size_t>(d)];
    fits = begin >= 0 && begin + destination.size(d) <= whole[d];
  }
  if (!fits || tensor.spec.dtype != destination.dtype()) {
    throw CheckpointError("{}: tensor \"{}\" is {}{}; {} at [{}] cannot be read from it", directory_.string(), name,
                          to_string(tensor.spec.dtype), whole.to_string(), destination.to_string(), fmt::join(offset, ", "));
  }
  if (destination.numel() == 0) {
    return;
  }
  for_each_part(destination, Staging::kBytes, [&](const std::vector<int64_t>& at, const TensorView& part) {
    Block wanted{.offset = {}, .shape = part.shape()};
    for (size_t d = 0; d < at.size(); ++d) {
      wanted.offset.push_back(offset[d] + at[d]);
    }
    const TensorView host = staging_.target_for(part);
    read_block(tensor, wanted, host);
    staging_.from_host(host, part);
  });
}

}  // namespace longhaul
