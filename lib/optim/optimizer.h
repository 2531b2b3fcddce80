// The optimizer's state and update over a stage's parameters, and the global gradient norm.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/group.h"
#include "model/parameters.h"
#include "optim/optimizer_options.h"

namespace longhaul {

class Optimizer {
 public:
  // m and v start at zero, on the device of `ctx`. `parameters` must outlive the optimizer.
  Optimizer(const Parameters& parameters, ExecContext& ctx);

  // One update of every master value; Parameters::publish follows. `grad_scale` is the clipping factor; `step` counts
  // updates from 1.
  void update(ExecContext& ctx, const OptimizerOptions& options, double learning_rate, double grad_scale, int64_t step);

  // State tensors: f(name, view, parameter) with names "m/<parameter>" and "v/<parameter>".
  template <class F>
  void for_each_state(F&& f) const {
    for (size_t i = 0; i < parameters_.all().size(); ++i) {
      f("m/" + parameters_.all()[i].name, m_[i], parameters_.all()[i]);
      f("v/" + parameters_.all()[i].name, v_[i], parameters_.all()[i]);
    }
  }
  [[nodiscard]] int64_t bytes() const noexcept { return memory_.view().bytes(); }

 private:
  const Parameters& parameters_;
  Tensor memory_;
  std::vector<TensorView> m_, v_;
};

// sum_of_squares[0] (f64, on the device of the gradients) += this rank's share of the sum of squares of all gradients of the
// model. Each parameter is counted once over the ranks of pipeline x expert: gradients that all expert ranks share by the first of them.
void add_gradient_squares(ExecContext& ctx, const Parameters& parameters, const Group& expert_group, TensorView sum_of_squares);

// The factor that brings `norm` down to clip_norm; 1 when it is below or clipping is off.
[[nodiscard]] double clip_factor(double norm, double clip_norm);

}  // namespace longhaul
