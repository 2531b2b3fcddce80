// See flops.h.
#include "model/flops.h"

namespace longhaul {
namespace {

int64_t kda_parameters(const ModelOptions& o) {
  const auto& linear = o.linear_attn_config;
  const int64_t inner = linear.num_heads * linear.head_dim;
  const int64_t gate = linear.use_full_rank_gate ? inner * o.hidden_size : linear.head_dim * (o.hidden_size + inner);
  return 3 * inner * (o.hidden_size + linear.short_conv_kernel_size) + linear.head_dim * (o.hidden_size + inner) +
         linear.num_heads * o.hidden_size + gate + o.hidden_size * inner;
}

int64_t kda_vectors(const ModelOptions& o) {
  const auto& linear = o.linear_attn_config;
  return linear.num_heads + linear.num_heads * linear.head_dim + linear.head_dim;
}

int64_t mla_parameters(const ModelOptions& o) {
  const int64_t key_dim = o.qk_nope_head_dim + o.qk_rope_head_dim;
  const int64_t heads = o.num_attention_heads;
  const int64_t query = o.q_lora_rank ? *o.q_lora_rank * (o.hidden_size + heads * key_dim) : heads * key_dim * o.hidden_size;
  return query + o.hidden_size * (o.kv_lora_rank + o.qk_rope_head_dim) + o.kv_lora_rank * heads * (o.qk_nope_head_dim + o.v_head_dim) +
         (o.mla_use_output_gate ? 2 : 1) * o.hidden_size * heads * o.v_head_dim;
}

int64_t mla_vectors(const ModelOptions& o) { return o.q_lora_rank.value_or(0) + o.kv_lora_rank; }

int64_t expert_parameters(const ModelOptions& o) {
  return 3 * o.moe_intermediate_size * o.routed_expert_hidden_size.value_or(o.hidden_size);
}

// Feed-forward parameters with `experts` routed experts counted.
int64_t ffn_parameters(const ModelOptions& o, int64_t layer, int64_t experts) {
  if (o.is_dense(layer)) {
    return 3 * o.hidden_size * o.intermediate_size;
  }
  const int64_t latent = 2 * o.hidden_size * o.routed_expert_hidden_size.value_or(0);
  return o.num_experts * o.hidden_size + latent + 3 * o.hidden_size * o.num_shared_experts * o.moe_intermediate_size +
         experts * expert_parameters(o);
}

int64_t layer_vectors(const ModelOptions& o, int64_t layer) {
  const int64_t latent_norm = !o.is_dense(layer) && o.latent_moe_use_norm ? o.routed_expert_hidden_size.value_or(0) : 0;
  return (o.block_size() > 0 ? 6 : 2) * o.hidden_size + latent_norm + (o.is_kda(layer) ? kda_vectors(o) : mla_vectors(o));
}

}  // namespace

int64_t active_parameters(const ModelOptions& o, int64_t layer) {
  return (o.is_kda(layer) ? kda_parameters(o) : mla_parameters(o)) + ffn_parameters(o, layer, o.num_experts_per_token);
}

int64_t active_parameters(const ModelOptions& o) {
  int64_t total = o.vocab_size * o.hidden_size;
  for (int64_t layer = 0; layer < o.num_hidden_layers; ++layer) {
    total += active_parameters(o, layer);
  }
  return total;
}

int64_t total_parameters(const ModelOptions& o) {
  int64_t total = 2 * o.vocab_size * o.hidden_size + (o.block_size() > 0 ? 3 : 1) * o.hidden_size;
  for (int64_t layer = 0; layer < o.num_hidden_layers; ++layer) {
    total += (o.is_kda(layer) ? kda_parameters(o) : mla_parameters(o)) + ffn_parameters(o, layer, o.num_experts) +
             layer_vectors(o, layer);
  }
  return total;
}

double forward_flops(const ModelOptions& o, int64_t layer, double document_tokens) {
  const double matrices = 2.0 * static_cast<double>(active_parameters(o, layer));
  if (o.is_kda(layer)) {
    const auto d = static_cast<double>(o.linear_attn_config.head_dim);
    const double chunk = 64;
    return matrices + static_cast<double>(o.linear_attn_config.num_heads) * (6 * d * d + 3 * chunk * d + chunk * chunk);
  }
  const auto widths = static_cast<double>(o.qk_nope_head_dim + o.qk_rope_head_dim + o.v_head_dim);
  return matrices + static_cast<double>(o.num_attention_heads) * widths * (document_tokens + 1);
}

double training_flops_per_token(const ModelOptions& o, double document_tokens) {
  double forward = 2.0 * static_cast<double>(o.vocab_size * o.hidden_size);
  for (int64_t layer = 0; layer < o.num_hidden_layers; ++layer) {
    forward += forward_flops(o, layer, document_tokens);
  }
  return 3.0 * forward;
}

}  // namespace longhaul
