// See config_json.h. In a released Kimi-Linear file an absent key means the older form: softplus decay, low-rank output
// gate, no MLA gate, ordinary residuals, experts on the full width.
#include "model/config_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/error.h"

namespace longhaul {
namespace {

using nlohmann::json;

class Reader {
 public:
  Reader(const json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object()) {
      throw ConversionError("config.json: {} must be an object", path_.empty() ? "the file" : path_);
    }
  }

  [[nodiscard]] bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

  template <class T>
  [[nodiscard]] T need(const char* key) const {
    if (!has(key)) {
      throw ConversionError("config.json: {}{} is missing", path_, key);
    }
    return get<T>(key);
  }
  template <class T>
  [[nodiscard]] T value(const char* key, T otherwise) const {
    return has(key) ? get<T>(key) : otherwise;
  }
  template <class T>
  [[nodiscard]] std::optional<T> maybe(const char* key) const {
    return has(key) ? std::optional<T>(get<T>(key)) : std::nullopt;
  }
  // The key, if present, must have this value.
  template <class T>
  void refuse_unless(const char* key, const T& only) const {
    if (has(key) && get<T>(key) != only) {
      throw ConversionError("config.json: {}{} is {}; only {} is supported", path_, key, object_[key].dump(), json(only).dump());
    }
  }

 private:
  template <class T>
  [[nodiscard]] T get(const char* key) const {
    try {
      return object_[key].get<T>();
    } catch (const json::exception&) {
      throw ConversionError("config.json: {}{} has the wrong type: {}", path_, key, object_[key].dump());
    }
  }

  const json& object_;
  std::string path_;
};

// Layer numbers, 1-based, from either form in use: lists of numbers, or one type name a layer. A file may have both.
void read_layers(const Reader& text, LinearAttentionOptions& linear) {
  const bool has_lists = !linear.kda_layers.empty() || !linear.full_attn_layers.empty();
  if (has_lists && !text.has("layer_types")) {
    return;
  }
  std::vector<int64_t> kda, full;
  const auto types = text.need<std::vector<std::string>>("layer_types");
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "linear_attention" && types[i] != "full_attention") {
      throw ConversionError("config.json: layer_types[{}] is \"{}\"; known are linear_attention and full_attention", i, types[i]);
    }
    (types[i] == "linear_attention" ? kda : full).push_back(static_cast<int64_t>(i) + 1);
  }
  std::sort(linear.kda_layers.begin(), linear.kda_layers.end());
  if (has_lists && linear.kda_layers != kda) {
    throw ConversionError("config.json: layer_types makes [{}] linear, linear_attn_config.kda_layers says [{}]; make them agree",
                          fmt::join(kda, ", "), fmt::join(linear.kda_layers, ", "));
  }
  linear.kda_layers = kda;
  linear.full_attn_layers = full;
}

// Leading layers with a dense feed-forward, from either form in use: a number, or one type name a layer.
int64_t read_dense_layers(const Reader& text) {
  const auto stated = text.maybe<int64_t>("first_k_dense_replace");
  const auto types = text.value<std::vector<std::string>>("mlp_layer_types", {});
  if (types.empty()) {
    return stated.value_or(0);
  }
  const auto first_sparse = std::find_if(types.begin(), types.end(), [](const std::string& type) { return type != "dense"; });
  const auto dense = static_cast<int64_t>(first_sparse - types.begin());
  if (std::any_of(first_sparse, types.end(), [](const std::string& type) { return type != "sparse"; })) {
    throw ConversionError("config.json: mlp_layer_types must be leading \"dense\" and then \"sparse\" layers, got {}",
                          fmt::join(types, ", "));
  }
  if (stated && *stated != dense) {
    throw ConversionError("config.json: mlp_layer_types begins with {} dense layers, first_k_dense_replace says {}; make them agree", dense,
                          *stated);
  }
  return dense;
}

// Applies the limits that describe() states for recipes to a model that came from a file.
class LimitCheck {
 public:
  explicit LimitCheck(std::string path = "") : path_(std::move(path)) {}

  class Field {
   public:
    Field(std::string key, std::optional<double> value) : key_(std::move(key)), value_(value) {}
    const Field& at_least(double low) const { return require(value_ >= low, fmt::format("at least {}", low)); }
    const Field& range(double low, double high) const {
      return require(value_ >= low && value_ <= high, fmt::format("in [{}, {}]", low, high));
    }
    const Field& positive() const { return require(value_ > 0, "positive"); }

   private:
    const Field& require(bool holds, std::string_view wanted) const {
      if (value_ && !holds) {
        throw ConversionError("config.json: {} must be {}, got {}", key_, wanted, *value_);
      }
      return *this;
    }
    std::string key_;
    std::optional<double> value_;
  };
  template <class T>
  Field field(std::string_view key, T& value, std::string_view) {
    const std::string name = path_ + std::string(key);
    if constexpr (std::is_same_v<T, LinearAttentionOptions>) {
      LimitCheck inside(name + ".");
      describe(inside, value);
      return {name, std::nullopt};
    } else if constexpr (std::is_same_v<T, std::optional<int64_t>> || std::is_same_v<T, std::optional<double>>) {
      return {name, value ? std::optional(static_cast<double>(*value)) : std::nullopt};
    } else if constexpr (std::is_arithmetic_v<T>) {
      return {name, static_cast<double>(value)};
    } else {
      return {name, std::nullopt};
    }
  }

 private:
  std::string path_;
};

void read_linear_attention(const Reader& text, const json& config, ModelOptions& o) {
  LinearAttentionOptions& linear = o.linear_attn_config;
  if (text.has("linear_attn_config")) {
    const Reader section(config["linear_attn_config"], "linear_attn_config.");
    linear.num_heads = section.need<int64_t>("num_heads");
    linear.head_dim = section.need<int64_t>("head_dim");
    linear.short_conv_kernel_size = section.value<int64_t>("short_conv_kernel_size", 4);
    linear.gate_lower_bound = section.maybe<double>("gate_lower_bound");
    linear.use_full_rank_gate = section.value("use_full_rank_gate", false);
    linear.kda_layers = section.value<std::vector<int64_t>>("kda_layers", {});
    linear.full_attn_layers = section.value<std::vector<int64_t>>("full_attn_layers", {});
  } else {
    linear.num_heads = text.need<int64_t>("linear_num_heads");
    linear.head_dim = text.need<int64_t>("linear_head_dim");
    linear.short_conv_kernel_size = text.value<int64_t>("linear_conv_kernel_dim", 4);
    linear.gate_lower_bound = std::nullopt;
    linear.use_full_rank_gate = false;
  }
  read_layers(text, linear);
}

}  // namespace

ModelOptions model_options_from_config(const json& config) {
  const Reader top(config, "");
  if (top.has("text_config")) {
    top.refuse_unless("tie_word_embeddings", false);
    return model_options_from_config(config["text_config"]);
  }
  top.refuse_unless("tie_word_embeddings", false);
  top.refuse_unless("mla_use_nope", true);
  top.refuse_unless<int64_t>("num_expert_group", 1);
  top.refuse_unless<int64_t>("topk_group", 1);
  top.refuse_unless<int64_t>("moe_layer_freq", 1);
  top.refuse_unless<std::string>("moe_router_activation_func", "sigmoid");
  top.refuse_unless("moe_renormalize", true);
  top.refuse_unless<std::string>("topk_method", "noaux_tc");
  top.refuse_unless<int64_t>("num_nextn_predict_layers", 0);
  top.refuse_unless("attention_bias", false);

  ModelOptions o;
  o.vocab_size = top.need<int64_t>("vocab_size");
  o.hidden_size = top.need<int64_t>("hidden_size");
  o.num_hidden_layers = top.need<int64_t>("num_hidden_layers");
  o.num_attention_heads = top.need<int64_t>("num_attention_heads");
  o.q_lora_rank = top.maybe<int64_t>("q_lora_rank");
  o.kv_lora_rank = top.need<int64_t>("kv_lora_rank");
  o.qk_nope_head_dim = top.need<int64_t>("qk_nope_head_dim");
  o.qk_rope_head_dim = top.need<int64_t>("qk_rope_head_dim");
  o.v_head_dim = top.need<int64_t>("v_head_dim");
  o.mla_use_output_gate = top.value("mla_use_output_gate", false);
  read_linear_attention(top, config, o);
  o.attn_res_block_size = top.maybe<int64_t>("attn_res_block_size");
  o.first_k_dense_replace = read_dense_layers(top);
  o.intermediate_size = top.need<int64_t>("intermediate_size");
  o.num_experts = top.value<int64_t>("num_experts", 0);
  o.num_experts_per_token = o.num_experts > 0 ? top.need<int64_t>("num_experts_per_token") : 1;
  o.num_shared_experts = top.value<int64_t>("num_shared_experts", 0);
  o.moe_intermediate_size = top.value<int64_t>("moe_intermediate_size", 0);
  o.routed_expert_hidden_size = top.maybe<int64_t>("routed_expert_hidden_size");
  o.latent_moe_use_norm = top.value("latent_moe_use_norm", o.routed_expert_hidden_size.has_value());
  o.routed_scaling_factor = top.value("routed_scaling_factor", 1.0);
  const auto act = top.value<std::string>("hidden_act", "silu");
  if (act != "situ" && act != "silu") {
    throw ConversionError("config.json: hidden_act is \"{}\"; known are situ and silu", act);
  }
  o.hidden_act = act == "situ" ? HiddenAct::Situ : HiddenAct::Silu;
  o.activation_situ_beta = top.value("activation_situ_beta", 4.0);
  o.activation_situ_linear_beta = top.value("activation_situ_linear_beta", 25.0);
  o.rms_norm_eps = top.value("rms_norm_eps", 1e-5);
  o.initializer_range = top.value("initializer_range", 0.02);
  LimitCheck limits;
  describe(limits, o);
  check(o, [](std::string_view key, const std::string& message) { throw ConversionError("config.json: {}: {}", key, message); });
  return o;
}

ModelOptions model_options_from_config_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) {
    throw ConversionError("{}: cannot be opened; give the config.json of a released model", path.string());
  }
  json config;
  try {
    config = json::parse(file);
  } catch (const json::exception& error) {
    throw ConversionError("{}: not valid JSON: {}", path.string(), error.what());
  }
  try {
    return model_options_from_config(config);
  } catch (Error& error) {
    error.add_context(path.string());
    throw;
  }
}

}  // namespace longhaul
