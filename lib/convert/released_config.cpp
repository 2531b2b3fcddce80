// See released_config.h.
#include "convert/released_config.h"

#include <nlohmann/json.hpp>

#include "base/enum_names.h"
#include "convert/mxfp4.h"

namespace longhaul {

namespace {

using nlohmann::ordered_json;

constexpr int64_t kKimiVocabulary = 163840;  // whose special tokens are known

template <class T>
ordered_json nullable(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

const char* type_text(ReleasedType type) { return type == ReleasedType::F32 ? "float32" : "bfloat16"; }

// What an importer needs to build the model.
void put_architecture(ordered_json& text, const ModelOptions& m) {
  const LinearAttentionOptions& linear = m.linear_attn_config;
  text["vocab_size"] = m.vocab_size;
  text["hidden_size"] = m.hidden_size;
  text["intermediate_size"] = m.intermediate_size;
  text["num_hidden_layers"] = m.num_hidden_layers;
  text["num_attention_heads"] = m.num_attention_heads;
  text["num_key_value_heads"] = m.num_attention_heads;
  text["q_lora_rank"] = nullable(m.q_lora_rank);
  text["kv_lora_rank"] = m.kv_lora_rank;
  text["qk_nope_head_dim"] = m.qk_nope_head_dim;
  text["qk_rope_head_dim"] = m.qk_rope_head_dim;
  text["v_head_dim"] = m.v_head_dim;
  text["mla_use_nope"] = true;
  text["hidden_act"] = enum_name(m.hidden_act);
  text["first_k_dense_replace"] = m.first_k_dense_replace;
  text["moe_layer_freq"] = 1;
  text["num_experts"] = m.num_experts;
  text["num_experts_per_token"] = m.num_experts_per_token;
  text["num_shared_experts"] = m.num_shared_experts;
  text["moe_intermediate_size"] = m.moe_intermediate_size;
  text["moe_renormalize"] = true;
  text["moe_router_activation_func"] = "sigmoid";
  text["topk_method"] = "noaux_tc";
  text["use_grouped_topk"] = true;
  text["num_expert_group"] = 1;
  text["topk_group"] = 1;
  text["routed_scaling_factor"] = m.routed_scaling_factor;
  text["num_nextn_predict_layers"] = 0;
  text["rms_norm_eps"] = m.rms_norm_eps;
  text["initializer_range"] = m.initializer_range;
  text["tie_word_embeddings"] = false;
  ordered_json section = {{"head_dim", linear.head_dim},
                          {"num_heads", linear.num_heads},
                          {"short_conv_kernel_size", linear.short_conv_kernel_size},
                          {"kda_layers", linear.kda_layers},
                          {"full_attn_layers", linear.full_attn_layers}};
  if (released_format(m) == ReleasedFormat::KimiK3) {
    section["gate_lower_bound"] = nullable(linear.gate_lower_bound);
    section["use_full_rank_gate"] = linear.use_full_rank_gate;
    text["mla_use_output_gate"] = m.mla_use_output_gate;
    text["activation_situ_beta"] = m.activation_situ_beta;
    text["activation_situ_linear_beta"] = m.activation_situ_linear_beta;
    text["attn_res_block_size"] = nullable(m.attn_res_block_size);
    text["routed_expert_hidden_size"] = nullable(m.routed_expert_hidden_size);
    text["latent_moe_use_norm"] = m.latent_moe_use_norm;
  }
  text["linear_attn_config"] = std::move(section);
}

// compressed-tensors' description of MXFP4 experts, as released.
ordered_json quantization() {
  const ordered_json weights = {{"num_bits", 4},       {"type", "float"},   {"symmetric", true},          {"strategy", "group"},
                                {"group_size", mxfp4::kGroup}, {"dynamic", false}, {"scale_dtype", "torch.uint8"}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "mxfp4-pack-quantized"},
          {"quantization_status", "compressed"},
          {"config_groups",
           {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", nullptr}, {"output_activations", nullptr}}}}},
          {"ignore",
           {"re:.*self_attn.*", "re:.*shared_experts.*", R"(re:.*mlp\.(gate|up|gate_up|down)_proj.*)", "re:.*lm_head.*", "re:.*vision_tower.*",
            "re:.*mm_projector.*"}}};
}

// Keys that are set only where nothing was imported.
void put_default(ordered_json& object, const char* key, ordered_json value) {
  if (!object.contains(key)) {
    object[key] = std::move(value);
  }
}

void put_token_defaults(ordered_json& object, const ModelOptions& model) {
  const bool is_kimi = model.vocab_size == kKimiVocabulary;
  put_default(object, "bos_token_id", is_kimi ? ordered_json(163584) : ordered_json(nullptr));
  put_default(object, "eos_token_id", is_kimi ? ordered_json(163586) : ordered_json(nullptr));
  put_default(object, "pad_token_id", is_kimi ? ordered_json(163839) : ordered_json(nullptr));
}

void put_text_model(ordered_json& text, const ReleasedConfigRequest& request) {
  text["architectures"] = {"KimiLinearForCausalLM"};
  text["model_type"] = "kimi_linear";
  text["dtype"] = type_text(request.types.weights);
  text.erase("torch_dtype");
  put_architecture(text, request.model);
  put_default(text, released_format(request.model) == ReleasedFormat::KimiK3 ? "max_position_embeddings" : "model_max_length", 1048576);
  put_default(text, "use_cache", true);
  put_token_defaults(text, request.model);
  text.erase("quantization_config");
  if (request.types.experts == ReleasedType::Mxfp4) {
    text["quantization_config"] = quantization();
  }
}

ordered_json k3_config(ordered_json root, const ReleasedConfigRequest& request) {
  root["architectures"] = {"KimiK3ForConditionalGeneration"};
  root["model_type"] = "kimi_k3";
  root["dtype"] = type_text(request.types.weights);
  root.erase("torch_dtype");
  root["tie_word_embeddings"] = false;
  root.erase("quantization_config");  // the released place is the text model's section
  put_token_defaults(root, request.model);
  put_default(root, "ignore_index", -100);
  if (request.model.vocab_size == kKimiVocabulary) {
    put_default(root, "media_placeholder_token_id", 163605);
    put_default(root, "image_placeholder", "<|kimi_image_placeholder|>");
  }
  put_default(root, "auto_map",
              {{"AutoConfig", "configuration_kimi_k3.KimiK3Config"}, {"AutoModelForCausalLM", "modeling_kimi_k3.KimiK3ForConditionalGeneration"}});
  if (!request.has_passthrough) {
    root.erase("vision_config");  // it would promise tensors that are not there
  }
  put_text_model(root["text_config"], request);
  return root;
}

// The imported file where it is of the same model type, else nothing.
ordered_json imported_config(const ReleasedConfigRequest& request, const char* model_type) {
  if (!request.imported) {
    return ordered_json::object();
  }
  ordered_json root = ordered_json::parse(*request.imported, nullptr, false);
  return root.is_object() && root.value("model_type", "") == model_type ? root : ordered_json::object();
}

}  // namespace

std::string released_config(const ReleasedConfigRequest& request) {
  ordered_json root;
  if (released_format(request.model) == ReleasedFormat::KimiK3) {
    root = k3_config(imported_config(request, "kimi_k3"), request);
  } else {
    root = imported_config(request, "kimi_linear");
    for (const char* derived : {"layer_types", "mlp_layer_types", "linear_conv_kernel_dim", "linear_head_dim", "linear_num_heads", "qk_head_dim"}) {
      root.erase(derived);  // follow from the architecture, which may be another now
    }
    put_text_model(root, request);
  }
  return root.dump(2) + "\n";
}

}  // namespace longhaul
