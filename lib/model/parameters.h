// The memory of a stage's parameters and gradients. All parameters of one kind lie in one contiguous block, in the order of
// StageModel::for_each: first those that every data rank holds, then the experts. A block is what a gradient reduction
// sums in one call.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/stage_model.h"
#include "tensor/tensor.h"

namespace longhaul {

struct Parameter {
  std::string name;    // global: "model.layers.3.self_attn.q_proj.weight"
  ParameterSpec spec;  // of this rank's part
  TensorView value;    // spec.shape, compute type (the CPU computes in the master type)
  TensorView gradient;  // spec.shape, gradient_type
};

class Parameters {
 public:
  // Values are unspecified until initialise or a load; gradients are zero.
  Parameters(const StageModel& model, Device device);

  // Draws every value as a function of (seed, name, global element index) alone: any layout starts from the same model.
  void initialise(ExecContext& ctx, uint64_t seed);
  void zero_gradients(ExecContext& ctx);

  [[nodiscard]] std::span<const Parameter> all() const noexcept { return parameters_; }
  [[nodiscard]] const Parameter* find(std::string_view name) const;
  [[nodiscard]] const StageModel::Weights<TensorView>& values() const noexcept { return values_; }
  [[nodiscard]] const StageModel::Weights<TensorView>& gradients() const noexcept { return gradients_; }
  // Contiguous blocks, one dimension; empty views when the stage has none.
  [[nodiscard]] TensorView dense_gradients() const noexcept { return dense_gradients_; }
  [[nodiscard]] TensorView expert_gradients() const noexcept { return expert_gradients_; }
  [[nodiscard]] int64_t bytes() const noexcept { return value_memory_.view().bytes() + gradient_memory_.view().bytes(); }

 private:
  std::vector<Parameter> parameters_;
  Tensor value_memory_;
  Tensor gradient_memory_;
  TensorView dense_gradients_, expert_gradients_;
  StageModel::Weights<TensorView> values_;
  StageModel::Weights<TensorView> gradients_;
};

// Fills one parameter as Parameters::initialise does.
void initialise_parameter(ExecContext& ctx, const ParameterSpec& spec, std::string_view name, uint64_t seed, TensorView value);

}  // namespace longhaul
