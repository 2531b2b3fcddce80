// How the tensors of other programs' files map onto the parameters of this one. Each external tensor is a list of parts;
// a part is a block of it and the parameter (and expert) that the block is. Known are the released layouts of Kimi K3 and
// Kimi Linear, and the names inside Hugging Face transformers' kimi_linear (merged experts, one merged convolution).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/options.h"

namespace longhaul {

// Elements [first, first + count) of the external tensor, row-major, are elements [to, to + count) of `parameter`.
struct TensorPart {
  std::string parameter;  // our name: "model.layers.3.block_sparse_moe.experts.w1.weight"
  int64_t first = 0;
  int64_t to = 0;
  int64_t count = 0;
};

// The name of the selection bias of a mixture layer, which is state and not a parameter.
[[nodiscard]] std::string selection_bias_name(int64_t layer);

// The parts of an external tensor. Empty when the name belongs to nothing in this model.
[[nodiscard]] std::vector<TensorPart> parts_of(std::string_view external_name, const std::vector<int64_t>& shape, const ModelOptions& model);

}  // namespace longhaul
