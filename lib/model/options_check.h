// Cross-field rules of ModelOptions; part of options.h.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "model/options.h"

namespace longhaul {

template <class Report>
void check(const ModelOptions& o, Report&& report) {
  const auto need = [&](const char* key, int64_t value) {
    if (value < 1) {
      report(key, std::string("is needed and must be at least 1"));
    }
  };
  need("vocab_size", o.vocab_size);
  need("hidden_size", o.hidden_size);
  need("num_hidden_layers", o.num_hidden_layers);
  need("num_attention_heads", o.num_attention_heads);
  need("kv_lora_rank", o.kv_lora_rank);
  need("qk_nope_head_dim", o.qk_nope_head_dim);
  need("v_head_dim", o.v_head_dim);
  need("linear_attn_config.num_heads", o.linear_attn_config.num_heads);
  need("linear_attn_config.head_dim", o.linear_attn_config.head_dim);
  if (o.first_k_dense_replace > 0 || o.num_experts == 0) {
    need("intermediate_size", o.intermediate_size);
  }
  std::set<int64_t> listed;
  const auto count = [&](const char* key, const std::vector<int64_t>& layers) {
    for (const int64_t layer : layers) {
      if (layer < 1 || layer > o.num_hidden_layers) {
        report(key, fmt::format("layers are numbered from 1 to num_hidden_layers = {}, got {}", o.num_hidden_layers, layer));
      } else if (!listed.insert(layer).second) {
        report(key, fmt::format("layer {} is listed twice; kda_layers and full_attn_layers must not overlap", layer));
      }
    }
  };
  count("linear_attn_config.kda_layers", o.linear_attn_config.kda_layers);
  count("linear_attn_config.full_attn_layers", o.linear_attn_config.full_attn_layers);
  // A mistyped number of layers may be any number: the first ones that are missing say enough.
  constexpr int kMostReported = 20;
  for (int64_t layer = 1, reported = 0; layer <= o.num_hidden_layers && reported < kMostReported; ++layer) {
    if (!listed.contains(layer)) {
      report("linear_attn_config", fmt::format("layer {} is in neither kda_layers nor full_attn_layers (numbers count from 1)", layer));
      ++reported;
    }
  }
  if (o.num_experts > 0) {
    if (o.num_experts_per_token > o.num_experts) {
      report("num_experts_per_token", fmt::format("must be at most num_experts = {}, got {}", o.num_experts, o.num_experts_per_token));
    }
    if (o.moe_intermediate_size < 1) {
      report("moe_intermediate_size", std::string("must be at least 1 when num_experts is set"));
    }
  }
}

}  // namespace longhaul
