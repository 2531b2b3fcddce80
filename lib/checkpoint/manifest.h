// manifest.json: the last file that a save writes, and the first that a load reads. It names every file with size and
// XXH3-64 and says where every piece of every tensor lies, with a hash of its own. Its first entry is the hash of the
// manifest itself, taken with zeros in that place, so that damage to any byte of any file of a checkpoint is noticed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/content.h"
#include "storage/hash.h"
#include "tensor/tensor_view.h"

namespace longhaul {

// Of a compressed piece: one zstd frame, see storage/chunk_codec.h.
struct StoredChunk {
  int64_t file_offset = 0;
  int64_t bytes = 0;
  uint64_t hash = 0;  // of these bytes
};

struct StoredPiece {
  Block block;
  std::string file;     // "rank_00000.h5"
  std::string dataset;  // in that file
  int64_t file_offset = -1;  // of its bytes, contiguous and row-major; -1 when it has no elements or is compressed
  uint64_t hash = 0;         // of its values' bytes
  Shape chunk_shape = {};           // where it is compressed; otherwise of rank 0
  std::vector<StoredChunk> chunks = {};  // of all chunks of that shape, row-major
};

struct StoredTensor {
  TensorSpec spec;
  std::vector<StoredPiece> pieces;  // cover it exactly once
};

struct Manifest {
  CheckpointInfo info;
  std::map<std::string, FileHash, std::less<>> files;  // all but manifest.json
  std::map<std::string, StoredTensor, std::less<>> tensors;
  JsonDocuments documents;
  std::vector<JsonDocuments> rank_documents;  // one for each rank that saved
};

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kIndexName = "index.h5";

[[nodiscard]] std::string to_text(const Manifest& manifest);
// CheckpointError, naming `path`, for a manifest that is damaged, of a newer format, or does not describe its tensors
// exactly once.
[[nodiscard]] Manifest parse_manifest(std::string_view text, const std::filesystem::path& path);
// The manifest of a checkpoint directory.
[[nodiscard]] Manifest read_manifest(const std::filesystem::path& directory);

}  // namespace longhaul
