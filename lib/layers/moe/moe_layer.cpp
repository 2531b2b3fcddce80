// See moe_layer.h.
#include "layers/moe/moe_layer.h"

#include "base/cast.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/permute/permute.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/route_histogram/route_histogram.h"
#include "kernels/router/router.h"

namespace longhaul {

MoeLayer::Weights<ParameterSpec> MoeLayer::weights(const Group& expert_group) const {
  const Options& o = options;
  const auto project = [&](int64_t out, int64_t in) { return matrix(o.dtype, {out, in}, o.init_stddev); };
  const int64_t local = div_exact(o.num_experts, expert_group.size);
  const auto experts = [&](int64_t out, int64_t in) {
    ParameterSpec spec = matrix(o.dtype, {local, out, in}, o.init_stddev);
    spec.num_experts = o.num_experts;
    spec.first_expert = expert_group.rank * local;
    return spec;
  };
  Weights<ParameterSpec> w;
  w.gate = project(o.num_experts, o.hidden);
  if (o.latent > 0) {
    w.down_proj = project(o.latent, o.hidden);
    w.norm = norm_scale(o.dtype, o.latent);
    w.up_proj = project(o.hidden, o.latent);
  }
  if (o.shared_intermediate > 0) {
    w.shared = o.shared().weights();
  }
  w.w1 = w.w3 = experts(o.expert_intermediate, o.expert_width());
  w.w2 = experts(o.expert_width(), o.expert_intermediate);
  return w;
}

MoeLayer::Saved MoeLayer::forward(ExecContext& ctx, Arena& keep, const Group& expert_group, const Weights<TensorView>& w,
                                  const RouterState& router, TensorView x, TensorView y) const {
  const Options& o = options;
  const int64_t tokens = x.size(0);
  const int64_t slots = tokens * o.top_k;
  const int64_t width = o.expert_width();
  const DType exact = accurate_type(o.dtype);
  const auto kept = [&](const char* name, DType dtype, const Shape& shape) { return take(keep, name, dtype, shape); };
  const auto temporary = [&](const char* name, DType dtype, const Shape& shape) { return take(ctx.scratch(), name, dtype, shape); };
  Saved s;

  s.scores = kept("moe.scores", exact, {tokens, o.num_experts});
  s.experts = kept("moe.experts", DType::I32, {tokens, o.top_k});
  s.weights = kept("moe.weights", exact, {tokens, o.top_k});
  s.row_of_slot = kept("moe.row_of_slot", DType::I64, {slots});
  const ArenaScope scope(ctx.scratch());
  const TensorView offsets = temporary("moe.offsets", DType::I64, {o.num_experts + 1});
  {
    const ArenaScope inside(ctx.scratch());
    const TensorView logits = temporary("moe.logits", exact, {tokens, o.num_experts});
    const TensorView cutoff = temporary("moe.cutoff", exact, {tokens});
    linear_forward(ctx, {.x = x, .weight = w.gate, .y = logits});
    router_forward(ctx, {.logits = logits, .bias = router.bias, .top_k = o.top_k, .scaling = o.scaling,
                         .forced_experts = router.forced_experts, .scores = s.scores, .experts = s.experts, .weights = s.weights,
                         .cutoff = cutoff});
    if (router.counts.is_present()) {
      route_histogram(ctx, {.scores = s.scores, .cutoff = cutoff, .experts = s.experts, .low = router.low, .high = router.high,
                            .counts = router.counts, .load = router.load});
    }
  }
  plan_permutation(ctx, {.experts = s.experts, .num_experts = o.num_experts, .row_of_slot = s.row_of_slot, .offsets = offsets});

  s.z = x;
  if (o.latent > 0) {
    s.z = kept("moe.z", o.dtype, {tokens, o.latent});
    linear_forward(ctx, {.x = x, .weight = w.down_proj, .y = s.z});
  }
  const ExpertExchange exchange(expert_group);
  s.plan = exchange.plan(ctx, keep, offsets, slots);
  const Shape inner{s.plan.local_rows, o.expert_intermediate};
  s.rows = kept("moe.rows", o.dtype, {s.plan.local_rows, width});
  s.gate = kept("moe.gate", o.dtype, inner);
  s.up = kept("moe.up", o.dtype, inner);
  s.activated = kept("moe.activated", o.dtype, inner);
  s.expert_out = kept("moe.expert_out", o.dtype, {slots, width});
  {
    const ArenaScope inside(ctx.scratch());
    const TensorView sorted = exchange.is_local() ? s.rows : temporary("moe.sorted", o.dtype, {slots, width});
    permute_forward(ctx, {.x = s.z, .row_of_slot = s.row_of_slot, .top_k = o.top_k, .y = sorted});
    exchange.to_experts(ctx, s.plan, sorted, s.rows);
  }
  grouped_linear_forward(ctx, {.x = s.rows, .weight = w.w1, .offsets = s.plan.local_offsets, .y = s.gate});
  grouped_linear_forward(ctx, {.x = s.rows, .weight = w.w3, .offsets = s.plan.local_offsets, .y = s.up});
  gated_activation_forward(ctx, {.gate = s.gate, .up = s.up, .activation = o.activation, .y = s.activated});
  {
    const ArenaScope inside(ctx.scratch());
    const TensorView out = exchange.is_local() ? s.expert_out : temporary("moe.local_out", o.dtype, {s.plan.local_rows, width});
    grouped_linear_forward(ctx, {.x = s.activated, .weight = w.w2, .offsets = s.plan.local_offsets, .y = out});
    exchange.to_home(ctx, s.plan, out, s.expert_out);
  }

  const bool latent_norm = o.latent > 0 && o.latent_norm;
  s.combined = o.latent > 0 ? kept("moe.combined", o.dtype, {tokens, width}) : y;
  combine_forward(ctx, {.x = s.expert_out, .row_of_slot = s.row_of_slot, .weights = s.weights, .y = s.combined});
  if (o.latent > 0) {
    s.normed = s.combined;
    if (latent_norm) {
      s.inv_rms = kept("moe.inv_rms", exact, {tokens});
      s.normed = kept("moe.normed", o.dtype, {tokens, width});
      rms_norm_forward(ctx, {.x = s.combined, .scale = w.norm, .eps = o.norm_eps, .y = s.normed, .inv_rms = s.inv_rms});
    }
    linear_forward(ctx, {.x = s.normed, .weight = w.up_proj, .y = y});
  }
  if (o.shared_intermediate > 0) {
    s.shared = o.shared().forward(ctx, keep, w.shared, x, y, Accumulate::Add);
  }
  return s;
}

void MoeLayer::backward(ExecContext& ctx, const Group& expert_group, const Weights<TensorView>& w, TensorView x,
                        const Saved& s, TensorView dy, TensorView dx, const Weights<TensorView>& dw) const {
  const Options& o = options;
  const int64_t tokens = x.size(0);
  const int64_t slots = tokens * o.top_k;
  const int64_t width = o.expert_width();
  const DType exact = accurate_type(o.dtype);
  const ArenaScope scope(ctx.scratch());
  const auto temporary = [&](const char* name, DType dtype, const Shape& shape) { return take(ctx.scratch(), name, dtype, shape); };

  // Up-projection, norm, combine.
  TensorView dcombined = dy;
  if (o.latent > 0) {
    const TensorView dnormed = temporary("moe.dnormed", o.dtype, {tokens, width});
    linear_backward(ctx, {.dy = dy, .x = s.normed, .weight = w.up_proj, .dx = dnormed, .dweight = dw.up_proj});
    dcombined = dnormed;
    if (o.latent_norm) {
      dcombined = temporary("moe.dcombined", o.dtype, {tokens, width});
      rms_norm_backward(ctx, {.dy = dnormed, .x = s.combined, .scale = w.norm, .inv_rms = s.inv_rms, .dx = dcombined, .dscale = dw.norm});
    }
  }
  const TensorView dweights = temporary("moe.dweights", exact, {tokens, o.top_k});
  const TensorView dsorted = temporary("moe.dsorted", o.dtype, {slots, width});
  combine_backward(ctx, {.dy = dcombined, .x = s.expert_out, .row_of_slot = s.row_of_slot, .weights = s.weights, .dx = dsorted, .dweights = dweights});

  // The experts, on their ranks.
  const ExpertExchange exchange(expert_group);
  {
    const ArenaScope inside(ctx.scratch());
    const Shape inner{s.plan.local_rows, o.expert_intermediate};
    const TensorView drows = exchange.is_local() ? dsorted : temporary("moe.drows", o.dtype, {s.plan.local_rows, width});
    const TensorView dactivated = temporary("moe.dactivated", o.dtype, inner);
    const TensorView dgate = temporary("moe.dgate", o.dtype, inner);
    const TensorView dup = temporary("moe.dup", o.dtype, inner);
    exchange.to_experts(ctx, s.plan, dsorted, drows);
    grouped_linear_backward(ctx, {.dy = drows, .x = s.activated, .weight = w.w2, .offsets = s.plan.local_offsets, .dx = dactivated, .dweight = dw.w2});
    gated_activation_backward(ctx, {.dy = dactivated, .gate = s.gate, .up = s.up, .activation = o.activation, .dgate = dgate, .dup = dup});
    grouped_linear_backward(ctx, {.dy = dgate, .x = s.rows, .weight = w.w1, .offsets = s.plan.local_offsets, .dx = drows, .dweight = dw.w1});
    grouped_linear_backward(ctx, {.dy = dup, .x = s.rows, .weight = w.w3, .offsets = s.plan.local_offsets, .dx = drows, .dweight = dw.w3, .accumulate_dx = Accumulate::Add});
    exchange.to_home(ctx, s.plan, drows, dsorted);
  }

  // The input: latent path, router, shared experts.
  if (o.latent > 0) {
    const TensorView dz = temporary("moe.dz", o.dtype, {tokens, width});
    permute_backward(ctx, {.dy = dsorted, .row_of_slot = s.row_of_slot, .top_k = o.top_k, .dx = dz});
    linear_backward(ctx, {.dy = dz, .x = x, .weight = w.down_proj, .dx = dx, .dweight = dw.down_proj});
  } else {
    permute_backward(ctx, {.dy = dsorted, .row_of_slot = s.row_of_slot, .top_k = o.top_k, .dx = dx});
  }
  const TensorView dlogits = temporary("moe.dlogits", exact, {tokens, o.num_experts});
  router_backward(ctx, {.dweights = dweights, .scores = s.scores, .experts = s.experts, .weights = s.weights, .scaling = o.scaling, .dlogits = dlogits});
  linear_backward(ctx, {.dy = dlogits, .x = x, .weight = w.gate, .dx = dx, .dweight = dw.gate, .accumulate_dx = Accumulate::Add});
  if (o.shared_intermediate > 0) {
    o.shared().backward(ctx, w.shared, x, s.shared, dy, dx, dw.shared, Accumulate::Add);
  }
}

}  // namespace longhaul
