// See index_file.h.
#include "checkpoint/index_file.h"

#include "storage/atomic_write.h"
#include "storage/hdf5.h"

namespace longhaul {

namespace {
constexpr const char* kStageFinal = "stage_final";
}

void write_index_file(const std::filesystem::path& path, const Manifest& manifest) {
  hdf5::File file = hdf5::create_file(path);
  const CheckpointInfo& info = manifest.info;
  hdf5::write_attribute(file, "/", "step", info.step);
  hdf5::write_attribute(file, "/", "stage", std::string_view(info.stage));
  hdf5::write_attribute(file, "/", "tokens", info.tokens);
  hdf5::write_attribute(file, "/", "recipe", std::string_view(info.recipe));
  hdf5::write_attribute(file, "/", "versions", std::string_view(info.versions));
  hdf5::write_attribute(file, "/", kStageFinal, int64_t{info.role == CheckpointRole::StageFinal});
  for (const auto& [name, tensor] : manifest.tensors) {
    std::vector<hdf5::VirtualPiece> pieces;
    for (const StoredPiece& piece : tensor.pieces) {
      if (piece.block.shape.numel() > 0) {
        pieces.push_back(
            {.file = piece.file, .dataset = piece.dataset, .offset = piece.block.offset, .shape = piece.block.shape});
      }
    }
    hdf5::write_virtual_dataset(file, name, tensor.spec, pieces);
  }
  file.close();
  sync_file(path, ErrorKind::Checkpoint);
}

}  // namespace longhaul
