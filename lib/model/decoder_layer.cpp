// See decoder_layer.h.
#include "model/decoder_layer.h"

#include "base/profile.h"
#include "kernels/attn_res_mix/attn_res_mix.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/rms_norm/rms_norm.h"

namespace longhaul {
namespace {

TensorView as_vector(const TensorView& row) { return row.reshape({row.numel()}); }

// The gradient in the compute type: the view itself, or a converted copy in scratch memory.
TensorView in_type(ExecContext& ctx, DType dtype, const TensorView& x) {
  if (x.dtype() == dtype) {
    return x;
  }
  const TensorView converted = take(ctx.scratch(), "layer.converted", dtype, x.shape());
  copy(ctx, x, converted);
  return converted;
}

Activation activation_of(const ModelOptions& o) {
  return {.kind = o.hidden_act == HiddenAct::Situ ? ActivationKind::SituGlu : ActivationKind::SwiGlu,
          .beta_gate = o.activation_situ_beta,
          .beta_up = o.activation_situ_linear_beta};
}

KdaLayer::Options kda_options(const ModelOptions& o, DType dtype) {
  const LinearAttentionOptions& linear = o.linear_attn_config;
  return {.hidden = o.hidden_size,
          .heads = linear.num_heads,
          .head_dim = linear.head_dim,
          .conv_width = linear.short_conv_kernel_size,
          .decay = linear.gate_lower_bound ? DecayKind::Bounded : DecayKind::Softplus,
          .lower_bound = linear.gate_lower_bound.value_or(0.0),
          .full_rank_gate = linear.use_full_rank_gate,
          .norm_eps = o.rms_norm_eps,
          .init_stddev = o.initializer_range,
          .dtype = dtype};
}

MlaLayer::Options mla_options(const ModelOptions& o, DType dtype) {
  return {.hidden = o.hidden_size,
          .heads = o.num_attention_heads,
          .q_lora_rank = o.q_lora_rank.value_or(0),
          .kv_lora_rank = o.kv_lora_rank,
          .nope_dim = o.qk_nope_head_dim,
          .shared_dim = o.qk_rope_head_dim,
          .v_dim = o.v_head_dim,
          .output_gate = o.mla_use_output_gate,
          .init_stddev = o.initializer_range,
          .dtype = dtype};
}

MoeLayer::Options moe_options(const ModelOptions& o, DType dtype) {
  return {.hidden = o.hidden_size,
          .num_experts = o.num_experts,
          .top_k = o.num_experts_per_token,
          .expert_intermediate = o.moe_intermediate_size,
          .latent = o.routed_expert_hidden_size.value_or(0),
          .latent_norm = o.latent_moe_use_norm,
          .shared_intermediate = o.num_shared_experts * o.moe_intermediate_size,
          .scaling = o.routed_scaling_factor,
          .activation = activation_of(o),
          .norm_eps = o.rms_norm_eps,
          .init_stddev = o.initializer_range,
          .dtype = dtype};
}

}  // namespace

std::vector<TensorView> Stream::sources() const {
  std::vector<TensorView> all = blocks;
  all.push_back(prefix);
  return all;
}

DecoderLayer::DecoderLayer(const ModelOptions& model, int64_t number, DType type)
    : layer(number),
      hidden(model.hidden_size),
      block_size(model.block_size()),
      is_kda(model.is_kda(number)),
      is_dense(model.is_dense(number)),
      eps(model.rms_norm_eps),
      dtype(type),
      kda{kda_options(model, type)},
      mla{mla_options(model, type)},
      mlp{{.hidden = model.hidden_size, .intermediate = model.intermediate_size, .activation = activation_of(model),
           .init_stddev = model.initializer_range, .dtype = type}},
      moe{moe_options(model, type)} {}

DecoderLayer::Weights<ParameterSpec> DecoderLayer::weights(const Group& expert_group) const {
  Weights<ParameterSpec> w;
  w.input_norm = w.post_norm = w.attn_res_norm = w.mlp_res_norm = norm_scale(dtype, hidden);
  // Zero, so that training starts from the equal-weight mean of the sources (arXiv:2603.15031).
  w.attn_res_proj = w.mlp_res_proj = {.dtype = dtype, .shape = {1, hidden}, .init = InitKind::Zeros, .decay = WeightDecay::No};
  if (is_kda) {
    w.kda = kda.weights();
  } else {
    w.mla = mla.weights();
  }
  if (is_dense) {
    w.mlp = mlp.weights();
  } else {
    w.moe = moe.weights(expert_group);
  }
  return w;
}

DecoderLayer::Site DecoderLayer::enter(ExecContext& ctx, Arena& keep, const Stream& stream, TensorView res_norm,
                                       TensorView res_proj, TensorView norm) const {
  const Shape wide = stream.prefix.shape();
  Site site;
  site.mixed = stream.prefix;
  if (!stream.blocks.empty()) {
    site.mixed = take(keep, "layer.mixed", dtype, wide);
    const std::vector<TensorView> sources = stream.sources();
    attn_res_mix_forward(ctx, {.sources = sources, .norm_scale = res_norm, .query = as_vector(res_proj), .eps = eps, .y = site.mixed});
  }
  site.inv_rms = take(keep, "layer.inv_rms", accurate_type(dtype), {wide[0]});
  site.normed = take(keep, "layer.normed", dtype, wide);
  rms_norm_forward(ctx, {.x = site.mixed, .scale = norm, .eps = eps, .y = site.normed, .inv_rms = site.inv_rms});
  return site;
}

void DecoderLayer::leave(ExecContext& ctx, const Site& site, const Stream& stream, TensorView dnormed, TensorView res_norm,
                         TensorView res_proj, TensorView norm, const Stream& gradient, TensorView dres_norm,
                         TensorView dres_proj, TensorView dnorm) const {
  const ArenaScope scope(ctx.scratch());
  const TensorView dmixed = take(ctx.scratch(), "layer.dmixed", dtype, site.mixed.shape());
  rms_norm_backward(ctx, {.dy = dnormed, .x = site.mixed, .scale = norm, .inv_rms = site.inv_rms, .dx = dmixed, .dscale = dnorm});
  if (stream.blocks.empty()) {
    add(ctx, dmixed, gradient.prefix);
    return;
  }
  const std::vector<TensorView> sources = stream.sources();
  const std::vector<TensorView> dsources = gradient.sources();
  attn_res_mix_backward(ctx, {.dy = dmixed, .sources = sources, .norm_scale = res_norm, .query = as_vector(res_proj), .eps = eps,
                              .dsources = dsources, .dnorm_scale = dres_norm, .dquery = as_vector(dres_proj)});
}

DecoderLayer::Saved DecoderLayer::forward(ExecContext& ctx, Arena& keep, const Group& expert_group,
                                          const Weights<TensorView>& w, const RouterState& router, const Packing& packing,
                                          Stream& stream) const {
  const Shape wide = stream.prefix.shape();
  Saved s;
  s.before = stream;
  s.attention_site = enter(ctx, keep, stream, w.attn_res_norm, w.attn_res_proj, w.input_norm);
  const TensorView after_attention = take(keep, "layer.stream", dtype, wide);
  if (is_kda) {
    const ProfileScope profile("KDA layer");
    s.kda = kda.forward(ctx, keep, w.kda, packing, s.attention_site.normed, after_attention);
  } else {
    const ProfileScope profile("MLA layer");
    s.mla = mla.forward(ctx, keep, w.mla, packing, s.attention_site.normed, after_attention);
  }
  if (starts_block()) {
    stream.blocks.push_back(stream.prefix);
  } else {
    add(ctx, stream.prefix, after_attention);
  }
  stream.prefix = after_attention;

  s.middle = stream;
  s.ffn_site = enter(ctx, keep, stream, w.mlp_res_norm, w.mlp_res_proj, w.post_norm);
  const TensorView after_ffn = take(keep, "layer.stream", dtype, wide);
  if (is_dense) {
    const ProfileScope profile("MLP layer");
    s.mlp = mlp.forward(ctx, keep, w.mlp, s.ffn_site.normed, after_ffn);
  } else {
    const ProfileScope profile("MoE layer");
    s.moe = moe.forward(ctx, keep, expert_group, w.moe, router, s.ffn_site.normed, after_ffn);
  }
  add(ctx, stream.prefix, after_ffn);
  stream.prefix = after_ffn;
  return s;
}

void DecoderLayer::backward(ExecContext& ctx, const Group& expert_group, const Weights<TensorView>& w, const Packing& packing,
                            const Saved& s, Stream& gradient, const Weights<TensorView>& dw) const {
  const Shape wide = gradient.prefix.shape();
  {
    const ArenaScope scope(ctx.scratch());
    const TensorView dy = in_type(ctx, dtype, gradient.prefix);
    const TensorView dnormed = take(ctx.scratch(), "layer.dnormed", dtype, wide);
    if (is_dense) {
      const ProfileScope profile("MLP layer");
      mlp.backward(ctx, w.mlp, s.ffn_site.normed, s.mlp, dy, dnormed, dw.mlp);
    } else {
      const ProfileScope profile("MoE layer");
      moe.backward(ctx, expert_group, w.moe, s.ffn_site.normed, s.moe, dy, dnormed, dw.moe);
    }
    // The residual path leaves gradient.prefix as it is; the site adds its part.
    leave(ctx, s.ffn_site, s.middle, dnormed, w.mlp_res_norm, w.mlp_res_proj, w.post_norm, gradient, dw.mlp_res_norm,
          dw.mlp_res_proj, dw.post_norm);
  }
  const ArenaScope scope(ctx.scratch());
  const TensorView dy = in_type(ctx, dtype, gradient.prefix);
  const TensorView dnormed = take(ctx.scratch(), "layer.dnormed", dtype, wide);
  if (is_kda) {
    const ProfileScope profile("KDA layer");
    kda.backward(ctx, w.kda, packing, s.attention_site.normed, s.kda, dy, dnormed, dw.kda);
  } else {
    const ProfileScope profile("MLA layer");
    mla.backward(ctx, w.mla, packing, s.attention_site.normed, s.mla, dy, dnormed, dw.mla);
  }
  if (starts_block()) {
    // The prefix before this layer became the newest block: its gradient is what that block has collected.
    gradient.prefix = gradient.blocks.back();
    gradient.blocks.pop_back();
  }
  leave(ctx, s.attention_site, s.before, dnormed, w.attn_res_norm, w.attn_res_proj, w.input_norm, gradient, dw.attn_res_norm,
        dw.attn_res_proj, dw.input_norm);
}

}  // namespace longhaul
