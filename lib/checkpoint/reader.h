// Reads a checkpoint at any layout: a block of a tensor is put together from the pieces that hold it, wherever the cuts
// of the run that saved it were. Types are kept exactly; converting is not a matter of loading.
//
// The manifest says at which byte of which file a piece lies, so values are read from there by ordinary reads. HDF5 is for other
// programs: it never sees a file here, and so no damaged one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/block_read.h"
#include "checkpoint/manifest.h"
#include "checkpoint/staging.h"
#include "checkpoint/stored_chunks.h"
#include "storage/descriptor.h"

namespace longhaul {

class CheckpointReader {
 public:
  // Reads the manifest and compares the sizes of all files; not yet their content. CheckpointError when the directory is
  // not a complete checkpoint.
  explicit CheckpointReader(std::filesystem::path directory, DeviceTransfer copy = {});

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return directory_; }
  [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; }
  [[nodiscard]] const CheckpointInfo& info() const noexcept { return manifest_.info; }
  [[nodiscard]] int num_ranks() const noexcept { return static_cast<int>(manifest_.rank_documents.size()); }
  // JSON text. CheckpointError when there is no such document.
  [[nodiscard]] const std::string& document(std::string_view name) const;
  [[nodiscard]] const std::string& rank_document(int rank, std::string_view name) const;

  // What is wrong with a file's content: one line for each damaged tensor, or one for the file; empty when it is as saved.
  [[nodiscard]] std::vector<std::string> damage(const std::string& file) const;

  // The block of tensor `name` that begins at `offset` and has the size of `destination`. CheckpointError when there is no
  // such tensor, its type is another one, or the block reaches outside it. Does not verify hashes.
  void read(std::string_view name, std::span<const int64_t> offset, const TensorView& destination);

 private:
  [[nodiscard]] const FileDescriptor& open(const std::string& file);
  void read_block(const StoredTensor& tensor, const Block& wanted, const TensorView& host);

  std::filesystem::path directory_;
  Manifest manifest_;
  Staging staging_;
  ChunkReader chunks_;
  std::list<std::pair<std::string, FileDescriptor>> open_files_;  // most recently used first
};

}  // namespace longhaul
