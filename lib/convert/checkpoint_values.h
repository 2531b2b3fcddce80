// Reads the numbers of a checkpoint's tensors, whatever they are stored as (f32, f64, bf16, integers), in blocks that fit into
// memory.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "tensor/tensor.h"

namespace longhaul {

class CheckpointValues {
 public:
  static constexpr int64_t kBlockBytes = 8 << 20;

  // `reader` must outlive this.
  explicit CheckpointValues(CheckpointReader& reader) : reader_(reader) {}

  // Calls visit(values) for consecutive blocks, row-major, of the whole tensor (entry < 0) or of one entry of its first
  // dimension. Blocks are whole rows where a row is smaller than a block; small entries are read together and kept.
  void for_each_block(const std::string& name, int64_t entry, const std::function<void(std::span<const float>)>& visit);

  // One block, row-major. T is float (f64 is rounded) or double.
  template <class T>
  void read(const std::string& name, std::span<const int64_t> offset, const Shape& shape, std::span<T> out);

 private:
  [[nodiscard]] std::span<const float> entry_of(const std::string& name, const Shape& whole, int64_t entry);

  CheckpointReader& reader_;
  Tensor stored_;  // of the last read
  std::vector<float> block_;
  std::string kept_name_;       // the entries in kept_
  int64_t kept_first_ = 0;
  std::vector<float> kept_;
};

}  // namespace longhaul
