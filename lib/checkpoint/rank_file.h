// rank_XXXXX.h5: the pieces of one rank, each a contiguous dataset under the tensor's name, so that a run is restored by
// sequential reads and any part can be read by h5py.
//
// HDF5 lays the file out and closes it (create_rank_file); then RankFileWriter puts the values into the places that HDF5 gave
// them with ordinary writes, in the order of the file. So writing needs no HDF5 and may happen on another thread, a write
// that fails leaves the library in order, and each byte is touched once: it is hashed on its way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

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
  TensorView data;            // a view of the piece's memory, or without memory where the piece has a source
  int64_t file_offset = 0;
};

// A file that exists with all its datasets, whose values are still to be written.
struct RankFileLayout {
  std::filesystem::path path;
  std::vector<WrittenPiece> pieces;  // as given; hashes not yet known
  std::vector<FilePart> parts;       // all that has bytes, in the order of the file
};
[[nodiscard]] RankFileLayout create_rank_file(const std::filesystem::path& path, std::span<const Piece> pieces);

// Writes the parts of a layout, one after the other, and hashes pieces and file as they go by.
class RankFileWriter {
 public:
  // Sets the file's space aside, so that a full disk is noticed before anything is written. `progress` is kept.
  RankFileWriter(RankFileLayout layout, SaveProgress& progress);

  [[nodiscard]] const std::vector<FilePart>& parts() const noexcept { return layout_.parts; }
  // The values of the next part: contiguous, on the CPU, of its type and size.
  void write_next(const TensorView& host);
  // After the last part: brings all to the disk. Once.
  [[nodiscard]] WrittenFile finish();

 private:
  void hash_until(int64_t end);

  RankFileLayout layout_;
  SaveProgress& progress_;
  FileDescriptor file_;
  int64_t file_bytes_ = 0;
  size_t next_part_ = 0;
  StreamingHash piece_hash_;
  StreamingHash file_hash_;
  int64_t hashed_ = 0;       // bytes of the file in file_hash_
  int64_t handed_over_ = 0;  // bytes of the file that the disk was asked to begin with
};

// All of it at once. Memory beside the tensors: one staging buffer of 8 MiB, used for tensors that are strided or on a device.
[[nodiscard]] WrittenFile write_rank_file(const std::filesystem::path& path, std::span<const Piece> pieces, const DeviceTransfer& copy,
                                          SaveProgress& progress);

}  // namespace longhaul
