// See mla_layer.h.
#include "layers/mla/mla_layer.h"

#include <cmath>

#include "kernels/attention/attention.h"
#include "kernels/gated_output/gated_output.h"
#include "kernels/linear/linear.h"
#include "kernels/mla_pack/mla_pack.h"
#include "kernels/rms_norm/rms_norm.h"

namespace longhaul {

MlaLayer::Weights<ParameterSpec> MlaLayer::weights() const {
  const Options& o = options;
  const auto project = [&](int64_t out, int64_t in) { return matrix(o.dtype, {out, in}, o.init_stddev); };
  Weights<ParameterSpec> w;
  if (o.q_lora_rank > 0) {
    w.q_a_proj = project(o.q_lora_rank, o.hidden);
    w.q_a_layernorm = norm_scale(o.dtype, o.q_lora_rank);
    w.q_b_proj = project(o.heads * o.key_dim(), o.q_lora_rank);
  } else {
    w.q_proj = project(o.heads * o.key_dim(), o.hidden);
  }
  w.kv_a_proj = project(o.kv_lora_rank + o.shared_dim, o.hidden);
  w.kv_a_layernorm = norm_scale(o.dtype, o.kv_lora_rank);
  w.kv_b_proj = project(o.heads * (o.nope_dim + o.v_dim), o.kv_lora_rank);
  w.g_proj = project(o.heads * o.v_dim, o.hidden);
  w.o_proj = project(o.hidden, o.heads * o.v_dim);
  return w;
}

MlaLayer::Saved MlaLayer::forward(ExecContext& ctx, Arena& keep, const Weights<TensorView>& w, const Packing& packing,
                                  TensorView x, TensorView y) const {
  const Options& o = options;
  const int64_t tokens = packing.tokens;
  const DType exact = accurate_type(o.dtype);
  const auto kept = [&](const char* name, DType dtype, const Shape& shape) { return take(keep, name, dtype, shape); };

  Saved s;
  s.q = kept("mla.q", o.dtype, {tokens, o.heads, o.key_dim()});
  const TensorView q_wide = s.q.reshape({tokens, o.heads * o.key_dim()});
  if (o.q_lora_rank > 0) {
    s.q_a = kept("mla.q_a", o.dtype, {tokens, o.q_lora_rank});
    s.q_a_rms = kept("mla.q_a_rms", exact, {tokens});
    s.q_a_normed = kept("mla.q_a_normed", o.dtype, {tokens, o.q_lora_rank});
    linear_forward(ctx, {.x = x, .weight = w.q_a_proj, .y = s.q_a});
    rms_norm_forward(ctx, {.x = s.q_a, .scale = w.q_a_layernorm, .eps = o.latent_norm_eps, .y = s.q_a_normed, .inv_rms = s.q_a_rms});
    linear_forward(ctx, {.x = s.q_a_normed, .weight = w.q_b_proj, .y = q_wide});
  } else {
    linear_forward(ctx, {.x = x, .weight = w.q_proj, .y = q_wide});
  }

  s.kv_a = kept("mla.kv_a", o.dtype, {tokens, o.kv_lora_rank + o.shared_dim});
  s.kv_a_rms = kept("mla.kv_a_rms", exact, {tokens});
  s.kv_normed = kept("mla.kv_normed", o.dtype, {tokens, o.kv_lora_rank});
  s.kv = kept("mla.kv", o.dtype, {tokens, o.heads, o.nope_dim + o.v_dim});
  s.k = kept("mla.k", o.dtype, {tokens, o.heads, o.key_dim()});
  linear_forward(ctx, {.x = x, .weight = w.kv_a_proj, .y = s.kv_a});
  rms_norm_forward(ctx, {.x = s.kv_a.slice(1, 0, o.kv_lora_rank), .scale = w.kv_a_layernorm, .eps = o.latent_norm_eps,
                         .y = s.kv_normed, .inv_rms = s.kv_a_rms});
  linear_forward(ctx, {.x = s.kv_normed, .weight = w.kv_b_proj, .y = s.kv.reshape({tokens, o.heads * (o.nope_dim + o.v_dim)})});
  mla_pack_forward(ctx, {.k_heads = s.kv.slice(2, 0, o.nope_dim),
                         .k_shared = s.kv_a.slice(1, o.kv_lora_rank, o.kv_lora_rank + o.shared_dim),
                         .k = s.k});

  s.o = kept("mla.o", exact, {tokens, o.heads, o.v_dim});
  s.lse = kept("mla.lse", exact, {tokens, o.heads});
  attention_forward(ctx, {.q = s.q, .k = s.k, .v = s.kv.slice(2, o.nope_dim, o.nope_dim + o.v_dim),
                          .cu_seqlens = packing.cu_seqlens, .scale = 1.0 / std::sqrt(static_cast<double>(o.key_dim())),
                          .o = s.o, .lse = s.lse});

  const Shape wide{tokens, o.heads * o.v_dim};
  if (o.output_gate) {
    s.gate = kept("mla.gate", o.dtype, wide);
    linear_forward(ctx, {.x = x, .weight = w.g_proj, .y = s.gate});
  }
  s.gated = kept("mla.gated", o.dtype, wide);
  gated_output_forward(ctx, {.o = s.o.reshape(wide), .gate = s.gate, .y = s.gated});
  linear_forward(ctx, {.x = s.gated, .weight = w.o_proj, .y = y});
  return s;
}

void MlaLayer::backward(ExecContext& ctx, const Weights<TensorView>& w, const Packing& packing, TensorView x,
                        const Saved& s, TensorView dy, TensorView dx, const Weights<TensorView>& dw) const {
  const Options& o = options;
  const int64_t tokens = packing.tokens;
  const DType exact = accurate_type(o.dtype);
  const Shape wide{tokens, o.heads * o.v_dim};
  const ArenaScope scope(ctx.scratch());
  const auto temporary = [&](const char* name, DType dtype, const Shape& shape) { return take(ctx.scratch(), name, dtype, shape); };

  const TensorView dgated = temporary("mla.dgated", o.dtype, wide);
  const TensorView d_o = temporary("mla.d_o", exact, {tokens, o.heads, o.v_dim});
  const TensorView dgate = o.output_gate ? temporary("mla.dgate", o.dtype, wide) : TensorView{};
  linear_backward(ctx, {.dy = dy, .x = s.gated, .weight = w.o_proj, .dx = dgated, .dweight = dw.o_proj});
  gated_output_backward(ctx, {.dy = dgated, .o = s.o.reshape(wide), .gate = s.gate, .d_o = d_o.reshape(wide), .dgate = dgate});

  const TensorView dq = temporary("mla.dq", o.dtype, {tokens, o.heads, o.key_dim()});
  const TensorView dk = temporary("mla.dk", o.dtype, {tokens, o.heads, o.key_dim()});
  const TensorView dkv = temporary("mla.dkv", o.dtype, {tokens, o.heads, o.nope_dim + o.v_dim});
  attention_backward(ctx, {.d_o = d_o, .q = s.q, .k = s.k, .v = s.kv.slice(2, o.nope_dim, o.nope_dim + o.v_dim), .o = s.o,
                           .lse = s.lse, .cu_seqlens = packing.cu_seqlens,
                           .scale = 1.0 / std::sqrt(static_cast<double>(o.key_dim())), .dq = dq, .dk = dk,
                           .dv = dkv.slice(2, o.nope_dim, o.nope_dim + o.v_dim)});

  // Keys and values.
  const TensorView dkv_a = temporary("mla.dkv_a", o.dtype, {tokens, o.kv_lora_rank + o.shared_dim});
  const TensorView dkv_normed = temporary("mla.dkv_normed", o.dtype, {tokens, o.kv_lora_rank});
  mla_pack_backward(ctx, {.dk = dk, .dk_heads = dkv.slice(2, 0, o.nope_dim),
                          .dk_shared = dkv_a.slice(1, o.kv_lora_rank, o.kv_lora_rank + o.shared_dim)});
  linear_backward(ctx, {.dy = dkv.reshape({tokens, o.heads * (o.nope_dim + o.v_dim)}), .x = s.kv_normed, .weight = w.kv_b_proj,
                        .dx = dkv_normed, .dweight = dw.kv_b_proj});
  rms_norm_backward(ctx, {.dy = dkv_normed, .x = s.kv_a.slice(1, 0, o.kv_lora_rank), .scale = w.kv_a_layernorm,
                          .inv_rms = s.kv_a_rms, .dx = dkv_a.slice(1, 0, o.kv_lora_rank), .dscale = dw.kv_a_layernorm});
  linear_backward(ctx, {.dy = dkv_a, .x = x, .weight = w.kv_a_proj, .dx = dx, .dweight = dw.kv_a_proj});

  // From here everything is added to dx.
  const auto add_to_dx = [&](const TensorView& d, const TensorView& weight, const TensorView& dweight) {
    linear_backward(ctx, {.dy = d, .x = x, .weight = weight, .dx = dx, .dweight = dweight, .accumulate_dx = Accumulate::Add});
  };
  if (o.output_gate) {
    add_to_dx(dgate, w.g_proj, dw.g_proj);
  }
  const TensorView dq_wide = dq.reshape({tokens, o.heads * o.key_dim()});
  if (o.q_lora_rank == 0) {
    add_to_dx(dq_wide, w.q_proj, dw.q_proj);
    return;
  }
  const TensorView dq_normed = temporary("mla.dq_normed", o.dtype, {tokens, o.q_lora_rank});
  const TensorView dq_a = temporary("mla.dq_a", o.dtype, {tokens, o.q_lora_rank});
  linear_backward(ctx, {.dy = dq_wide, .x = s.q_a_normed, .weight = w.q_b_proj, .dx = dq_normed, .dweight = dw.q_b_proj});
  rms_norm_backward(ctx, {.dy = dq_normed, .x = s.q_a, .scale = w.q_a_layernorm, .inv_rms = s.q_a_rms, .dx = dq_a, .dscale = dw.q_a_layernorm});
  add_to_dx(dq_a, w.q_a_proj, dw.q_a_proj);
}

}  // namespace longhaul
