// See kda_layer.h.
#include "layers/kda/kda_layer.h"

#include <cmath>

#include "kernels/elementwise/elementwise.h"
#include "kernels/gated_rms_norm/gated_rms_norm.h"
#include "kernels/l2_norm/l2_norm.h"
#include "kernels/linear/linear.h"
#include "kernels/short_conv/short_conv.h"
#include "kernels/sigmoid/sigmoid.h"

namespace longhaul {
namespace {

// [channels, 1, width] as stored in checkpoints -> [channels, width] as the kernel reads it.
TensorView taps(const TensorView& conv) { return conv.reshape({conv.size(0), conv.size(2)}); }

}  // namespace

KdaLayer::Weights<ParameterSpec> KdaLayer::weights() const {
  const Options& o = options;
  const DType exact = accurate_type(o.dtype);
  const int64_t inner = o.heads * o.head_dim;
  const auto project = [&](int64_t out, int64_t in) { return matrix(o.dtype, {out, in}, o.init_stddev); };
  // A depthwise filter of width W sees W inputs: 1/sqrt(W) keeps their scale, the default of the field's libraries.
  const auto conv = [&] {
    ParameterSpec spec = matrix(exact, {inner, 1, o.conv_width}, 1.0 / std::sqrt(static_cast<double>(o.conv_width)));
    spec.decay = WeightDecay::No;
    return spec;
  };
  Weights<ParameterSpec> w;
  w.q_proj = w.k_proj = w.v_proj = project(inner, o.hidden);
  w.q_conv = w.k_conv = w.v_conv = conv();
  w.f_a_proj = project(o.head_dim, o.hidden);
  w.f_b_proj = project(inner, o.head_dim);
  w.b_proj = project(o.heads, o.hidden);
  w.a_log = {.dtype = exact,
             .shape = {o.heads},
             .init = o.decay == DecayKind::Bounded ? InitKind::Zeros : InitKind::LogUniform16,
             .decay = WeightDecay::No};
  w.dt_bias = {.dtype = exact, .shape = {inner}, .init = InitKind::DtBias, .decay = WeightDecay::No};
  w.o_norm = norm_scale(exact, o.head_dim);
  w.g_proj = project(inner, o.hidden);
  w.g_a_proj = project(o.head_dim, o.hidden);
  w.g_b_proj = project(inner, o.head_dim);
  w.o_proj = project(o.hidden, inner);
  return w;
}

KdaLayer::Saved KdaLayer::forward(ExecContext& ctx, Arena& keep, const Weights<TensorView>& w, const Packing& packing,
                                  TensorView x, TensorView y) const {
  const Options& o = options;
  const int64_t tokens = packing.tokens;
  const int64_t inner = o.heads * o.head_dim;
  const DType exact = accurate_type(o.dtype);
  const Shape wide{tokens, inner};
  const Shape by_head{tokens, o.heads, o.head_dim};
  const Shape per_head{tokens, o.heads};
  const auto kept = [&](const char* name, DType dtype, const Shape& shape) { return take(keep, name, dtype, shape); };

  Saved s;
  s.q_pre = kept("kda.q_pre", o.dtype, wide);
  s.k_pre = kept("kda.k_pre", o.dtype, wide);
  s.v_pre = kept("kda.v_pre", o.dtype, wide);
  s.q = kept("kda.q", o.dtype, by_head);
  s.k = kept("kda.k", o.dtype, by_head);
  s.v = kept("kda.v", o.dtype, by_head);
  s.q_inv_norm = kept("kda.q_inv_norm", exact, per_head);
  s.k_inv_norm = kept("kda.k_inv_norm", exact, per_head);
  {
    const ArenaScope scope(ctx.scratch());
    const TensorView convolved = take(ctx.scratch(), "kda.convolved", o.dtype, wide);
    const auto normalised = [&](const TensorView& proj, const TensorView& conv, const TensorView& pre,
                                const TensorView& out, const TensorView& inv_norm) {
      linear_forward(ctx, {.x = x, .weight = proj, .y = pre});
      short_conv_forward(ctx, {.x = pre, .weight = taps(conv), .cu_seqlens = packing.cu_seqlens, .y = convolved});
      l2_norm_forward(ctx, {.x = convolved.reshape(by_head), .y = out, .inv_norm = inv_norm});
    };
    normalised(w.q_proj, w.q_conv, s.q_pre, s.q, s.q_inv_norm);
    normalised(w.k_proj, w.k_conv, s.k_pre, s.k, s.k_inv_norm);
  }
  linear_forward(ctx, {.x = x, .weight = w.v_proj, .y = s.v_pre});
  short_conv_forward(ctx, {.x = s.v_pre, .weight = taps(w.v_conv), .cu_seqlens = packing.cu_seqlens, .y = s.v.reshape(wide)});

  s.f_a = kept("kda.f_a", o.dtype, {tokens, o.head_dim});
  s.z = kept("kda.z", o.dtype, by_head);
  s.g = kept("kda.g", exact, by_head);
  linear_forward(ctx, {.x = x, .weight = w.f_a_proj, .y = s.f_a});
  linear_forward(ctx, {.x = s.f_a, .weight = w.f_b_proj, .y = s.z.reshape(wide)});
  decay_gate_forward(ctx, {.z = s.z, .a_log = w.a_log, .dt_bias = w.dt_bias, .kind = o.decay, .lower_bound = o.lower_bound, .g = s.g});

  s.beta = kept("kda.beta", exact, per_head);
  {
    const ArenaScope scope(ctx.scratch());
    const TensorView logits = take(ctx.scratch(), "kda.beta_logits", o.dtype, per_head);
    linear_forward(ctx, {.x = x, .weight = w.b_proj, .y = logits});
    sigmoid_forward(ctx, {.x = logits, .y = s.beta});
  }

  s.chunk_states = kept("kda.chunk_states", exact, 
                        {kda_state_rows(tokens, packing.documents(), o.head_dim), o.heads, o.head_dim, o.head_dim});
  s.o = kept("kda.o", o.dtype, by_head);
  kda_forward(ctx, {.q = s.q, .k = s.k, .v = s.v, .g = s.g, .beta = s.beta, .cu_seqlens = packing.cu_seqlens,
                    .scale = 1.0 / std::sqrt(static_cast<double>(o.head_dim)),
                    .tiles = o.decay == DecayKind::Bounded ? KdaTiles::Dense : KdaTiles::Pairwise,
                    .o = s.o, .chunk_states = s.chunk_states});

  s.gate = kept("kda.gate", o.dtype, wide);
  if (o.full_rank_gate) {
    linear_forward(ctx, {.x = x, .weight = w.g_proj, .y = s.gate});
  } else {
    s.g_a = kept("kda.g_a", o.dtype, {tokens, o.head_dim});
    linear_forward(ctx, {.x = x, .weight = w.g_a_proj, .y = s.g_a});
    linear_forward(ctx, {.x = s.g_a, .weight = w.g_b_proj, .y = s.gate});
  }
  s.inv_rms = kept("kda.inv_rms", exact, per_head);
  s.gated = kept("kda.gated", o.dtype, wide);
  gated_rms_norm_forward(ctx, {.o = s.o, .scale = w.o_norm, .gate = s.gate, .eps = o.norm_eps, .y = s.gated, .inv_rms = s.inv_rms});
  linear_forward(ctx, {.x = s.gated, .weight = w.o_proj, .y = y});
  return s;
}

void KdaLayer::backward(ExecContext& ctx, const Weights<TensorView>& w, const Packing& packing, TensorView x,
                        const Saved& s, TensorView dy, TensorView dx, const Weights<TensorView>& dw) const {
  const Options& o = options;
  const int64_t tokens = packing.tokens;
  const int64_t inner = o.heads * o.head_dim;
  const DType exact = accurate_type(o.dtype);
  const Shape wide{tokens, inner};
  const Shape by_head{tokens, o.heads, o.head_dim};
  const ArenaScope scope(ctx.scratch());
  const auto temporary = [&](const char* name, DType dtype, const Shape& shape) { return take(ctx.scratch(), name, dtype, shape); };

  const TensorView d_o = temporary("kda.d_o", o.dtype, by_head);
  {
    const ArenaScope inside(ctx.scratch());
    const TensorView dgated = temporary("kda.dgated", o.dtype, wide);
    const TensorView dgate = temporary("kda.dgate", o.dtype, wide);
    linear_backward(ctx, {.dy = dy, .x = s.gated, .weight = w.o_proj, .dx = dgated, .dweight = dw.o_proj});
    gated_rms_norm_backward(ctx, {.dy = dgated, .o = s.o, .scale = w.o_norm, .gate = s.gate, .inv_rms = s.inv_rms,
                                  .d_o = d_o, .dgate = dgate, .dscale = dw.o_norm});
    if (o.full_rank_gate) {
      linear_backward(ctx, {.dy = dgate, .x = x, .weight = w.g_proj, .dx = dx, .dweight = dw.g_proj});
    } else {
      const TensorView dg_a = temporary("kda.dg_a", o.dtype, {tokens, o.head_dim});
      linear_backward(ctx, {.dy = dgate, .x = s.g_a, .weight = w.g_b_proj, .dx = dg_a, .dweight = dw.g_b_proj});
      linear_backward(ctx, {.dy = dg_a, .x = x, .weight = w.g_a_proj, .dx = dx, .dweight = dw.g_a_proj});
    }
  }
  // From here dx holds the gate's part and everything else is added.
  const auto add_to_dx = [&](const TensorView& d, const TensorView& weight, const TensorView& dweight) {
    linear_backward(ctx, {.dy = d, .x = x, .weight = weight, .dx = dx, .dweight = dweight, .accumulate_dx = Accumulate::Add});
  };

  const TensorView dq = temporary("kda.dq", exact, by_head);
  const TensorView dk = temporary("kda.dk", exact, by_head);
  const TensorView dv = temporary("kda.dv", exact, by_head);
  const TensorView dg = temporary("kda.dg", exact, by_head);
  const TensorView dbeta = temporary("kda.dbeta", exact, {tokens, o.heads});
  kda_backward(ctx, {.d_o = d_o, .q = s.q, .k = s.k, .v = s.v, .g = s.g, .beta = s.beta, .cu_seqlens = packing.cu_seqlens,
                     .scale = 1.0 / std::sqrt(static_cast<double>(o.head_dim)),
                     .tiles = o.decay == DecayKind::Bounded ? KdaTiles::Dense : KdaTiles::Pairwise,
                     .chunk_states = s.chunk_states, .dq = dq, .dk = dk, .dv = dv, .dg = dg, .dbeta = dbeta});

  const TensorView dconvolved = temporary("kda.dconvolved", o.dtype, wide);
  const TensorView dpre = temporary("kda.dpre", o.dtype, wide);
  const auto through_conv = [&](const TensorView& dout, const TensorView& pre, const TensorView& conv,
                                const TensorView& dconv, const TensorView& proj, const TensorView& dproj) {
    short_conv_backward(ctx, {.dy = dout, .x = pre, .weight = taps(conv), .cu_seqlens = packing.cu_seqlens, .dx = dpre, .dweight = taps(dconv)});
    add_to_dx(dpre, proj, dproj);
  };
  l2_norm_backward(ctx, {.dy = dq, .y = s.q, .inv_norm = s.q_inv_norm, .dx = dconvolved.reshape(by_head)});
  through_conv(dconvolved, s.q_pre, w.q_conv, dw.q_conv, w.q_proj, dw.q_proj);
  l2_norm_backward(ctx, {.dy = dk, .y = s.k, .inv_norm = s.k_inv_norm, .dx = dconvolved.reshape(by_head)});
  through_conv(dconvolved, s.k_pre, w.k_conv, dw.k_conv, w.k_proj, dw.k_proj);
  copy(ctx, dv.reshape(wide), dconvolved);
  through_conv(dconvolved, s.v_pre, w.v_conv, dw.v_conv, w.v_proj, dw.v_proj);

  const TensorView dz = dconvolved.reshape(by_head);
  decay_gate_backward(ctx, {.dg = dg, .z = s.z, .a_log = w.a_log, .dt_bias = w.dt_bias, .kind = o.decay,
                            .lower_bound = o.lower_bound, .dz = dz, .da_log = dw.a_log, .ddt_bias = dw.dt_bias});
  const TensorView df_a = temporary("kda.df_a", o.dtype, {tokens, o.head_dim});
  linear_backward(ctx, {.dy = dz.reshape(wide), .x = s.f_a, .weight = w.f_b_proj, .dx = df_a, .dweight = dw.f_b_proj});
  add_to_dx(df_a, w.f_a_proj, dw.f_a_proj);

  const TensorView dlogits = temporary("kda.dbeta_logits", o.dtype, {tokens, o.heads});
  sigmoid_backward(ctx, {.dy = dbeta, .y = s.beta, .dx = dlogits});
  add_to_dx(dlogits, w.b_proj, dw.b_proj);
}

}  // namespace longhaul
