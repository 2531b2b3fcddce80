// See optimizer.h.
#include "optim/optimizer.h"

#include "kernels/adamw/adamw.h"
#include "kernels/elementwise/elementwise.h"

namespace longhaul {

Optimizer::Optimizer(const Parameters& parameters, ExecContext& ctx) : parameters_(parameters) {
  int64_t elements = 0;
  for (const Parameter& p : parameters.all()) {
    elements += 2 * p.spec.shape.numel();
  }
  const DType type = parameters.all().empty() ? DType::F32 : parameters.all()[0].value.dtype();
  memory_ = Tensor(type, {elements}, ctx.device());
  int64_t next = 0;
  const auto view = [&](const Shape& shape) {
    const TensorView part = memory_.view().slice(0, next, next + shape.numel()).reshape(shape);
    next += shape.numel();
    return part;
  };
  for (const Parameter& p : parameters.all()) {
    m_.push_back(view(p.spec.shape));
    v_.push_back(view(p.spec.shape));
  }
  fill(ctx, memory_, 0);
}

void Optimizer::update(ExecContext& ctx, const OptimizerOptions& options, double learning_rate, double grad_scale, int64_t step) {
  for (size_t i = 0; i < m_.size(); ++i) {
    const Parameter& p = parameters_.all()[i];
    adamw(ctx, {.parameter = p.value, .gradient = p.gradient, .m = m_[i], .v = v_[i], .grad_scale = grad_scale,
                .learning_rate = learning_rate, .beta1 = options.beta1, .beta2 = options.beta2, .eps = options.eps,
                .weight_decay = p.spec.decay == WeightDecay::Yes ? options.weight_decay : 0.0, .step = step});
  }
}

void add_gradient_squares(ExecContext& ctx, const Parameters& parameters, const Group& expert_group, TensorView sum_of_squares) {
  // Whole blocks: the gaps between tensors are zero.
  if (expert_group.is_first() && parameters.dense_gradients().numel() > 0) {
    add_sum_of_squares(ctx, parameters.dense_gradients(), sum_of_squares);
  }
  if (parameters.expert_gradients().numel() > 0) {
    add_sum_of_squares(ctx, parameters.expert_gradients(), sum_of_squares);
  }
}

double clip_factor(double norm, double clip_norm) { return clip_norm > 0 && norm > clip_norm ? clip_norm / norm : 1.0; }

}  // namespace longhaul
