// The architecture: the keys of a released K3 config.json's text_config, with the same meaning (Kimi K3,
// arXiv:2607.24653; Kimi Linear, arXiv:2510.26692). The Kimi-Linear model is a choice of these keys: no
// attn_res_block_size, no routed_expert_hidden_size, no gate_lower_bound, use_full_rank_gate and
// mla_use_output_gate false, q_lora_rank null, hidden_act silu.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/dtype.h"

namespace longhaul {

enum class HiddenAct : uint8_t { Situ, Silu };
constexpr auto enum_names(HiddenAct) {
  return std::array<std::pair<HiddenAct, std::string_view>, 2>{{{HiddenAct::Situ, "situ"}, {HiddenAct::Silu, "silu"}}};
}

struct LinearAttentionOptions {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t short_conv_kernel_size = 4;
  std::optional<double> gate_lower_bound = -5.0;  // null: softplus decay
  bool use_full_rank_gate = true;
  std::vector<int64_t> kda_layers;        // 1-based
  std::vector<int64_t> full_attn_layers;  // 1-based; with kda_layers a partition of 1..num_hidden_layers
};

struct ModelOptions {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  std::optional<int64_t> q_lora_rank;  // null: full-rank query
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
  bool mla_use_output_gate = true;
  LinearAttentionOptions linear_attn_config;
  std::optional<int64_t> attn_res_block_size;  // null: ordinary residuals
  int64_t first_k_dense_replace = 1;
  int64_t intermediate_size = 0;
  int64_t num_experts = 0;
  int64_t num_experts_per_token = 1;
  int64_t num_shared_experts = 1;
  int64_t moe_intermediate_size = 0;
  std::optional<int64_t> routed_expert_hidden_size;  // null: experts work on the full width
  bool latent_moe_use_norm = true;
  double routed_scaling_factor = 1.0;
  HiddenAct hidden_act = HiddenAct::Situ;
  double activation_situ_beta = 4.0;
  double activation_situ_linear_beta = 25.0;
  double rms_norm_eps = 1e-5;
  double initializer_range = 0.02;

  [[nodiscard]] bool is_kda(int64_t layer) const;  // layer is 0-based
  [[nodiscard]] bool is_dense(int64_t layer) const { return layer < first_k_dense_replace || num_experts == 0; }
  // Layers per Attention-Residual block; 0 without.
  [[nodiscard]] int64_t block_size() const { return attn_res_block_size.value_or(0); }
};

template <class V>
void describe(V& v, LinearAttentionOptions& o) {
  v.field("num_heads", o.num_heads, "heads of the KDA layers").at_least(1);
  v.field("head_dim", o.head_dim, "key and value width of a KDA head").at_least(1);
  v.field("short_conv_kernel_size", o.short_conv_kernel_size, "taps of the short convolutions").range(1, 16);
  v.field("gate_lower_bound", o.gate_lower_bound, "lower bound of the log-decay, in [-5, 0); null: unbounded softplus decay").range(-5.0, -1e-6);
  v.field("use_full_rank_gate", o.use_full_rank_gate, "output gate of full rank; false: of rank head_dim");
  v.field("kda_layers", o.kda_layers, "1-based numbers of the KDA layers");
  v.field("full_attn_layers", o.full_attn_layers, "1-based numbers of the MLA layers");
}

template <class V>
void describe(V& v, ModelOptions& o) {
  v.field("vocab_size", o.vocab_size, "size of the vocabulary").at_least(2);
  v.field("hidden_size", o.hidden_size, "width of the residual stream").at_least(1);
  v.field("num_hidden_layers", o.num_hidden_layers, "decoder layers").at_least(1);
  v.field("num_attention_heads", o.num_attention_heads, "heads of the MLA layers").at_least(1);
  v.field("q_lora_rank", o.q_lora_rank, "rank of the MLA query; null: full rank").at_least(1);
  v.field("kv_lora_rank", o.kv_lora_rank, "rank of the MLA keys and values").at_least(1);
  v.field("qk_nope_head_dim", o.qk_nope_head_dim, "own key width of an MLA head").at_least(1);
  v.field("qk_rope_head_dim", o.qk_rope_head_dim, "key width shared by all MLA heads; never rotated").at_least(0);
  v.field("v_head_dim", o.v_head_dim, "value width of an MLA head").at_least(1);
  v.field("mla_use_output_gate", o.mla_use_output_gate, "sigmoid gate on the MLA output");
  v.field("linear_attn_config", o.linear_attn_config, "the KDA layers");
  v.field("attn_res_block_size", o.attn_res_block_size, "decoder layers per Attention-Residual block; null: ordinary residuals").at_least(1);
  v.field("first_k_dense_replace", o.first_k_dense_replace, "leading layers with a dense feed-forward").at_least(0);
  v.field("intermediate_size", o.intermediate_size, "width of the dense feed-forward").at_least(1);
  v.field("num_experts", o.num_experts, "routed experts of a mixture layer; 0: all layers dense").at_least(0);
  v.field("num_experts_per_token", o.num_experts_per_token, "routed experts a token visits").at_least(1);
  v.field("num_shared_experts", o.num_shared_experts, "experts that every token visits").at_least(0);
  v.field("moe_intermediate_size", o.moe_intermediate_size, "width of one expert").at_least(0);
  v.field("routed_expert_hidden_size", o.routed_expert_hidden_size, "latent width of the routed experts; null: full width").at_least(1);
  v.field("latent_moe_use_norm", o.latent_moe_use_norm, "RMSNorm between the combine and the up-projection");
  v.field("routed_scaling_factor", o.routed_scaling_factor, "factor of the routing weights").positive();
  v.field("hidden_act", o.hidden_act, "activation of the feed-forward layers");
  v.field("activation_situ_beta", o.activation_situ_beta, "SiTU-GLU bound of the gate").positive();
  v.field("activation_situ_linear_beta", o.activation_situ_linear_beta, "SiTU-GLU bound of the linear part").positive();
  v.field("rms_norm_eps", o.rms_norm_eps, "epsilon of the RMSNorms").positive();
  v.field("initializer_range", o.initializer_range, "standard deviation of initial weights").positive();
}

// Cross-field rules: report(key, message) is called for every problem, with keys relative to the model section.
//   layer lists partition 1..num_hidden_layers; MoE sizes present when there are experts; top-k within the experts; …
template <class Report>
void check(const ModelOptions& o, Report&& report);

}  // namespace longhaul

#include "model/options_check.h"
