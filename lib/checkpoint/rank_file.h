// rank_XXXXX.h5: the pieces of one rank, each a contiguous dataset under the tensor's name, so that a run is restored by
// sequential reads and any part can be read by h5py.
//
// HDF5 lays the file out and closes it (RankFileWriter::create); then the values go into the places that HDF5 gave them with
// ordinary writes, in the order of the file. So writing needs no HDF5, a write that fails leaves the library in order, and
// each byte is touched once: it is hashed on its way. With compression HDF5 writes the chunks (compressed_file.h), all the time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_options.h"
#include "checkpoint/compressed_file.h"
#include "checkpoint/hooks.h"
#include "checkpoint/manifest.h"
#include "checkpoint/piece.h"
#include "checkpoint/staging.h"
#include "storage/descriptor.h"

namespace longhaul {

struct WrittenPiece {
  std::string name;
  TensorSpec whole;
  StoredPiece stored;
};
struct WrittenFile {
  std::string name;
  FileHash hash;
  std::vector<WrittenPiece> pieces;
};

// A part of a piece, of at most Staging::kBytes: consecutive elements in row-major order, and consecutive bytes of the file.
struct FilePart {
  size_t piece = 0;           // its number among the pieces
  int64_t first_element = 0;  // of the piece
  std::vector<int64_t> offset;  // of it in the piece
  TensorView data;            // a view of the piece's memory, or without memory where the piece has a source
};

// Writes the parts of a file one after the other, and hashes pieces and file as they go by. May be used on another thread than
// the one that made it, which may look at the parts meanwhile.
class RankFileWriter {
 public:
  // Touches no file yet. `pieces` and `progress` are kept.
  RankFileWriter(std::filesystem::path path, std::span<const Piece> pieces, Compression compression, SaveProgress& progress);

  // All that has bytes, in the order in which it is written.
  [[nodiscard]] const std::vector<FilePart>& parts() const noexcept { return parts_; }
  // Makes the file with all its datasets and sets its space aside, so that a full disk is noticed before anything is written.
  // Uses HDF5, as all that follows does with compression. Once.
  void create();
  // The values of the next part: contiguous, on the CPU, of its type and size.
  void write_next(const TensorView& host);
  // After the last part: brings all to the disk. Once.
  [[nodiscard]] WrittenFile finish();

  [[nodiscard]] Compression compression() const noexcept { return compression_; }

 private:
  void lay_out();
  [[nodiscard]] int64_t offset_of(const FilePart& part) const;
  void write_compressed(const FilePart& part, const TensorView& host);
  void write_bytes(const FilePart& part, std::span<const std::byte> bytes);
  void hash_in_order(int64_t offset, std::span<const std::byte> bytes);
  void hash_until(int64_t end);

  std::filesystem::path path_;
  std::span<const Piece> pieces_;
  Compression compression_;
  SaveProgress& progress_;
  std::vector<FilePart> parts_;
  std::vector<WrittenPiece> written_;  // as given; hashes follow
  std::optional<CompressedFile> compressed_;
  FileDescriptor file_;  // without compression
  int64_t file_bytes_ = 0;
  size_t next_part_ = 0;
  StreamingHash piece_hash_;
  StreamingHash file_hash_;
  bool is_in_order_ = true;  // HDF5 has put the parts into the file in their order, so that the file can be hashed on the way
  int64_t hashed_ = 0;       // bytes of the file in file_hash_
  int64_t handed_over_ = 0;  // bytes of the file that the disk was asked to begin with
};

// All of it at once. Memory beside the tensors: one staging buffer of 8 MiB, used for tensors that are strided or on a device.
[[nodiscard]] WrittenFile write_rank_file(const std::filesystem::path& path, std::span<const Piece> pieces, Compression compression,
                                          const DeviceTransfer& copy, SaveProgress& progress);

}  // namespace longhaul
