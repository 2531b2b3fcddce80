// rank_XXXXX.h5: the pieces of one rank, each a contiguous dataset under the tensor's name, so that a run is restored by
// sequential reads and any part can be read by h5py.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/hooks.h"
#include "checkpoint/manifest.h"
#include "checkpoint/piece.h"

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

// Writes, closes and brings to the disk, then hashes what the system gives back. Memory beside the tensors: one staging
// buffer of 8 MiB, used for tensors that are strided or on a device.
[[nodiscard]] WrittenFile write_rank_file(const std::filesystem::path& path, std::span<const Piece> pieces, const DeviceTransfer& copy,
                                          SaveProgress& progress);

}  // namespace longhaul
