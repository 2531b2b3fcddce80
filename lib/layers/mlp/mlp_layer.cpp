// See mlp_layer.h.
#include "layers/mlp/mlp_layer.h"

namespace longhaul {

MlpLayer::Weights<ParameterSpec> MlpLayer::weights() const {
  const Options& o = options;
  Weights<ParameterSpec> w;
  w.gate_proj = w.up_proj = matrix(o.dtype, {o.intermediate, o.hidden}, o.init_stddev);
  w.down_proj = matrix(o.dtype, {o.hidden, o.intermediate}, o.init_stddev);
  return w;
}

MlpLayer::Saved MlpLayer::forward(ExecContext& ctx, Arena& keep, const Weights<TensorView>& w, TensorView x, TensorView y,
                                  Accumulate accumulate) const {
  const Shape inner{x.size(0), options.intermediate};
  Saved s;
  s.gate = take(keep, "mlp.gate", options.dtype, inner);
  s.up = take(keep, "mlp.up", options.dtype, inner);
  s.activated = take(keep, "mlp.activated", options.dtype, inner);
  linear_forward(ctx, {.x = x, .weight = w.gate_proj, .y = s.gate});
  linear_forward(ctx, {.x = x, .weight = w.up_proj, .y = s.up});
  gated_activation_forward(ctx, {.gate = s.gate, .up = s.up, .activation = options.activation, .y = s.activated});
  linear_forward(ctx, {.x = s.activated, .weight = w.down_proj, .y = y, .accumulate = accumulate});
  return s;
}

void MlpLayer::backward(ExecContext& ctx, const Weights<TensorView>& w, TensorView x, const Saved& s, TensorView dy,
                        TensorView dx, const Weights<TensorView>& dw, Accumulate accumulate_dx) const {
  const ArenaScope scope(ctx.scratch());
  const Shape inner{x.size(0), options.intermediate};
  const TensorView dactivated = take(ctx.scratch(), "mlp.dactivated", options.dtype, inner);
  const TensorView dgate = take(ctx.scratch(), "mlp.dgate", options.dtype, inner);
  const TensorView dup = take(ctx.scratch(), "mlp.dup", options.dtype, inner);
  linear_backward(ctx, {.dy = dy, .x = s.activated, .weight = w.down_proj, .dx = dactivated, .dweight = dw.down_proj});
  gated_activation_backward(ctx, {.dy = dactivated, .gate = s.gate, .up = s.up, .activation = options.activation, .dgate = dgate, .dup = dup});
  linear_backward(ctx, {.dy = dgate, .x = x, .weight = w.gate_proj, .dx = dx, .dweight = dw.gate_proj, .accumulate_dx = accumulate_dx});
  linear_backward(ctx, {.dy = dup, .x = x, .weight = w.up_proj, .dx = dx, .dweight = dw.up_proj, .accumulate_dx = Accumulate::Add});
}

}  // namespace longhaul
