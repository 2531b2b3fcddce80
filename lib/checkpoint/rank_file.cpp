// See rank_file.h.
#include "checkpoint/rank_file.h"

#include <map>

#include "checkpoint/staging.h"
#include "storage/atomic_write.h"
#include "storage/hdf5.h"

namespace longhaul {

namespace {

void validate(const Piece& piece) {
  const TensorView& data = piece.data;
  LH_CHECK(!piece.name.empty() && !piece.name.starts_with('/') && !piece.name.ends_with('/') &&
               piece.name.find("//") == std::string::npos && piece.name.find('\0') == std::string::npos,
           "\"{}\" cannot name a tensor in a checkpoint", piece.name);
  LH_CHECK(data.is_present() && data.rank() == piece.global_shape.rank() &&
               narrow<int>(piece.offset.size()) == piece.global_shape.rank(),
           "the piece {} of \"{}\" does not fit into {}", data.to_string(), piece.name, piece.global_shape.to_string());
}

// The row-major number of an element.
int64_t element_at(const std::vector<int64_t>& offset, const Shape& shape) {
  int64_t element = 0;
  for (size_t d = 0; d < offset.size(); ++d) {
    element = element * shape[static_cast<int>(d)] + offset[d];
  }
  return element;
}

// Copies the piece into its dataset part by part and returns the hash of its bytes.
uint64_t write_piece(const hdf5::Dataset& dataset, const Piece& piece, Staging& staging, SaveProgress& progress) {
  StreamingHash hash;
  for_each_part(piece.data, Staging::kBytes, [&](const std::vector<int64_t>& offset, const TensorView& part) {
    const TensorView host =
        piece.source ? staging.fill_from(piece.source, element_at(offset, piece.data.shape()), part) : staging.to_host(part);
    hdf5::write_block(dataset, offset, host);
    if (host.bytes() > 0) {
      hash.update(std::span(static_cast<const std::byte*>(host.raw()), static_cast<size_t>(host.bytes())));
    }
    progress.wrote(host.bytes());
  });
  return hash.digest();
}

}  // namespace

WrittenFile write_rank_file(const std::filesystem::path& path, std::span<const Piece> pieces, const DeviceTransfer& copy,
                            SaveProgress& progress) {
  WrittenFile written{.name = path.filename().string()};
  hdf5::File file = hdf5::create_file(path);
  Staging staging(copy);
  std::map<std::string, int> count_of_name;
  for (const Piece& piece : pieces) {
    validate(piece);
    const int count = count_of_name[piece.name]++;
    const std::string dataset_name = count == 0 ? piece.name : fmt::format("{}#{}", piece.name, count);
    StoredPiece stored{.block = {.offset = piece.offset, .shape = piece.data.shape()}, .file = written.name, .dataset = dataset_name};
    try {
      const hdf5::Dataset dataset = hdf5::create_dataset(file, dataset_name, piece.data.spec());
      stored.hash = write_piece(dataset, piece, staging, progress);
      stored.file_offset = hdf5::byte_offset(dataset);
    } catch (CheckpointError& error) {
      error.add_context(fmt::format("tensor {} of {}", piece.name, path.string()));
      throw;
    }
    written.pieces.push_back({.name = piece.name, .whole = {piece.data.dtype(), piece.global_shape}, .stored = std::move(stored)});
  }
  file.close();
  sync_file(path, ErrorKind::Checkpoint);
  written.hash = hash_file(path, ErrorKind::Checkpoint);
  return written;
}

}  // namespace longhaul
