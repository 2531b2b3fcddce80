// The memory of a stage's parameters and gradients. All parameters of one kind lie in one contiguous block, in the order of
// StageModel::for_each: first those that every data rank holds, then the experts. A block is what a gradient reduction
// sums in one call. Where the model computes in bf16, the master values are fp32, and a second block holds the rounded
// copies that the model reads; whoever writes masters calls publish.
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
  TensorView value;    // spec.shape, the master: accurate type of the model
  TensorView gradient;  // spec.shape, gradient_type
};

class Parameters {
 public:
  // On the device of `ctx`. Values are unspecified until initialise or a load; gradients are zero.
  Parameters(const StageModel& model, ExecContext& ctx);

  // Draws every value as a function of (seed, name, global element index) alone: any layout starts from the same model.
  void initialise(ExecContext& ctx, uint64_t seed);
  // Rounds the masters into what the model reads; nothing to do where both are one. After every change of the masters.
  void publish(ExecContext& ctx);
  void zero_gradients(ExecContext& ctx);

  [[nodiscard]] std::span<const Parameter> all() const noexcept { return parameters_; }
  [[nodiscard]] const Parameter* find(std::string_view name) const;
  // What the model reads: each in the type of its spec.
  [[nodiscard]] const StageModel::Weights<TensorView>& values() const noexcept { return values_; }
  [[nodiscard]] const StageModel::Weights<TensorView>& gradients() const noexcept { return gradients_; }
  // Contiguous blocks, one dimension; empty views when the stage has none.
  [[nodiscard]] TensorView dense_gradients() const noexcept { return dense_gradients_; }
  [[nodiscard]] TensorView expert_gradients() const noexcept { return expert_gradients_; }

 private:
  std::vector<Parameter> parameters_;
  Tensor value_memory_;
  Tensor compute_memory_;  // laid out like value_memory_; empty where the model reads the masters
  Tensor gradient_memory_;
  TensorView dense_gradients_, expert_gradients_;
  StageModel::Weights<TensorView> values_;
  StageModel::Weights<TensorView> gradients_;
};

// Fills one parameter as Parameters::initialise does.
void initialise_parameter(ExecContext& ctx, const ParameterSpec& spec, std::string_view name, uint64_t seed, TensorView value);

}  // namespace longhaul
