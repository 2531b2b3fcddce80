// Runs of whole layers, with the weights under their released names; see golden_runs.h.
#include "layers/kda/kda_layer.h"
#include "layers/mla/mla_layer.h"
#include "layers/mlp/mlp_layer.h"
#include "layers/moe/moe_layer.h"
#include "tests/golden/golden_runs.h"
#include "tests/support/compare.h"
#include "tests/support/layer_group.h"

namespace longhaul::testing {
namespace {

template <class Layer>
struct LayerWeights {
  typename Layer::template Weights<TensorView> values, gradients;

  LayerWeights(const Layer& layer, GoldenCase& c) {
    Layer::for_each(layer.options, values, [&](const char* name, TensorView& view) { view = c[std::string("weight.") + name]; });
    Layer::for_each(layer.options, gradients,
                    [&](const char* name, TensorView& view) { view = c.grad_sum(std::string("weight.") + name); });
  }
};

// Layers that read packed documents.
template <class Layer>
void run_sequence_layer(ExecContext& ctx, GoldenCase& c, const Layer& layer) {
  const LayerWeights<Layer> w(layer, c);
  const TensorView x = c["in.x"];
  const Packing packing{.tokens = x.size(0), .cu_seqlens = c.cu_seqlens()};
  Arena keep(Device{}, "keep", 0, Arena::Growth::Chunked);
  const auto saved = layer.forward(ctx, keep, w.values, packing, x, c.out("y"));
  layer.backward(ctx, w.values, packing, x, saved, c["dy.y"], c.grad("in.x"), w.gradients);
}

void run_kda_layer(ExecContext& ctx, GoldenCase& c) {
  const std::optional<double> bound = c.maybe_number("gate_lower_bound");
  run_sequence_layer(ctx, c, KdaLayer{{.hidden = c["in.x"].size(1),
                                       .heads = c.integer("num_heads"),
                                       .head_dim = c.integer("head_dim"),
                                       .conv_width = c.integer("short_conv_kernel_size"),
                                       .decay = bound ? DecayKind::Bounded : DecayKind::Softplus,
                                       .lower_bound = bound.value_or(-1),
                                       .full_rank_gate = c.text("use_full_rank_gate") == "true",
                                       .norm_eps = c.number("rms_norm_eps"),
                                       .dtype = c.dtype()}});
}

void run_mla_layer(ExecContext& ctx, GoldenCase& c) {
  run_sequence_layer(ctx, c, MlaLayer{{.hidden = c["in.x"].size(1),
                                       .heads = c.integer("num_attention_heads"),
                                       .q_lora_rank = static_cast<int64_t>(c.maybe_number("q_lora_rank").value_or(0)),
                                       .kv_lora_rank = c.integer("kv_lora_rank"),
                                       .nope_dim = c.integer("qk_nope_head_dim"),
                                       .shared_dim = c.integer("qk_rope_head_dim"),
                                       .v_dim = c.integer("v_head_dim"),
                                       .output_gate = c.text("mla_use_output_gate") == "true",
                                       .latent_norm_eps = c.number("latent_norm_eps"),
                                       .dtype = c.dtype()}});
}

Activation activation_of(const GoldenCase& c) {
  if (c.text("hidden_act") == "silu") {
    return {.kind = ActivationKind::SwiGlu};
  }
  return {
      .kind = ActivationKind::SituGlu, .beta_gate = c.number("activation_situ_beta"), .beta_up = c.number("activation_situ_linear_beta")};
}

void run_mlp(ExecContext& ctx, GoldenCase& c) {
  const TensorView x = c["in.x"];
  const MlpLayer layer{
      {.hidden = x.size(1), .intermediate = c["weight.gate_proj.weight"].size(0), .activation = activation_of(c), .dtype = c.dtype()}};
  const LayerWeights<MlpLayer> w(layer, c);
  Arena keep(Device{}, "keep", 0, Arena::Growth::Chunked);
  const MlpLayer::Saved saved = layer.forward(ctx, keep, w.values, x, c.out("y"));
  layer.backward(ctx, w.values, x, saved, c["dy.y"], c.grad("in.x"), w.gradients);
}

void run_moe_layer(ExecContext& ctx, GoldenCase& c) {
  const TensorView x = c["in.x"];
  const bool is_latent = c.has("weight.routed_expert_down_proj.weight");
  const MoeLayer layer{{.hidden = x.size(1),
                        .num_experts = c.integer("num_experts"),
                        .top_k = c.integer("num_experts_per_token"),
                        .expert_intermediate = c.integer("moe_intermediate_size"),
                        .latent = is_latent ? c["weight.routed_expert_down_proj.weight"].size(0) : 0,
                        .latent_norm = true,
                        .shared_intermediate = c.integer("num_shared_experts") * c.integer("moe_intermediate_size"),
                        .scaling = c.number("routed_scaling_factor"),
                        .activation = activation_of(c),
                        .norm_eps = c.number("rms_norm_eps"),
                        .dtype = c.dtype()}};
  const LayerWeights<MoeLayer> w(layer, c);
  const Alone alone;
  Arena keep(Device{}, "keep", 0, Arena::Growth::Chunked);
  const RouterState router{.bias = c["weight.gate.e_score_correction_bias"], .forced_experts = {}, .counts = {}, .load = {}};
  const MoeLayer::Saved saved = layer.forward(ctx, keep, alone.group, w.values, router, x, c.out("y"));
  layer.backward(ctx, alone.group, w.values, x, saved, c["dy.y"], c.grad("in.x"), w.gradients);
  c.expect("out.routes", to_doubles(saved.experts));
  c.expect("out.mixing_weights", to_doubles(saved.weights));
  c.leave_out("out.cutoffs");  // not kept by the layer; the router's own case has them
}

}  // namespace

GoldenRuns layer_runs() {
  return {{"kda_layer", run_kda_layer}, {"mla_layer", run_mla_layer}, {"mlp", run_mlp}, {"moe_layer", run_moe_layer}};
}

}  // namespace longhaul::testing
