// One view of checkpoints and released directories: named tensors whose numbers can be read in blocks. A released directory
// is seen through the names of a checkpoint ("model/…" with stacked experts, "passthrough/…"), so that the two can be compared.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convert/targets.h"
#include "model/options.h"
#include "tensor/shape.h"

namespace longhaul {

struct SourceTensor {
  std::string name;
  std::string type;  // "f32", "bf16", "mxfp4", "bf16+mxfp4" where parts differ, …
  Shape shape;
  int64_t bytes = 0;  // as stored
};

class TensorSource {
 public:
  TensorSource() = default;
  TensorSource(const TensorSource&) = delete;
  TensorSource& operator=(const TensorSource&) = delete;
  virtual ~TensorSource() = default;

  [[nodiscard]] virtual DirectoryKind kind() const noexcept = 0;
  // CheckpointError when a checkpoint has no usable recipe.
  [[nodiscard]] virtual ModelOptions options() const = 0;
  // Sorted by name.
  [[nodiscard]] const std::vector<SourceTensor>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] const SourceTensor* find(std::string_view name) const;
  // The block of a tensor that begins at `offset` and has `shape`: consecutive elements in the row-major order of the tensor,
  // as for_each_part (checkpoint/piece.h) gives them.
  virtual void read(const SourceTensor& tensor, std::span<const int64_t> offset, const Shape& shape, std::span<double> out) = 0;

 protected:
  std::vector<SourceTensor> tensors_;
};

// A checkpoint, the newest one of a run directory, or a released directory. CheckpointError, ConversionError.
[[nodiscard]] std::unique_ptr<TensorSource> open_tensor_source(const std::filesystem::path& path);
// The same; what is no checkpoint and no run directory is taken for a released directory.
[[nodiscard]] std::unique_ptr<TensorSource> open_model_source(const std::filesystem::path& path);

}  // namespace longhaul
