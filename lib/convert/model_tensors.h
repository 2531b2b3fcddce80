// The tensors of a model's weights as a checkpoint holds them, without memory: every parameter, and the selection biases
// of the mixture layers.
#pragma once

#include <string>
#include <vector>

#include "model/options.h"
#include "tensor/shape.h"

namespace longhaul {

inline constexpr std::string_view kModelGroup = "model/";              // of the names in a checkpoint
inline constexpr std::string_view kPassthroughGroup = "passthrough/";  // of tensors that are none of this model

struct ModelTensor {
  std::string name;     // without the prefix: "model.layers.3.block_sparse_moe.experts.w1.weight"
  Shape shape;          // over all ranks; experts are stacked along the first dimension
  int64_t experts = 0;  // 0: not a stack of experts
};

// In the order of StageModel::for_each; a selection bias follows its router's weight.
[[nodiscard]] std::vector<ModelTensor> model_tensors(const ModelOptions& model);

}  // namespace longhaul
