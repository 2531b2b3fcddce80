// Released config.json files: what the three reference models say, the forms in use, and what is refused by name.
#include "model/config_json.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace longhaul {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using nlohmann::json;

const std::filesystem::path kReference = std::filesystem::path(LH_SOURCE_DIR) / "tests/golden/reference";

json config_of(const char* folder) {
  std::ifstream file(kReference / folder / "config.json");
  return json::parse(file);
}
// The file of Kimi K3 without the wrapper, and that of Kimi Linear.
json k3() { return config_of("k3_tiny").at("text_config"); }
json kimi_linear() { return config_of("kl_tiny"); }

TEST_CASE("the reference configurations are read", "[model]") {
  for (const char* folder : {"k3_tiny", "k3_packed"}) {
    const ModelOptions o = model_options_from_config_file(kReference / folder / "config.json");
    CHECK(o.vocab_size == 256);
    CHECK(o.hidden_size == 64);
    CHECK(o.num_hidden_layers == 8);
    CHECK(o.q_lora_rank == 24);
    CHECK(o.kv_lora_rank == 16);
    CHECK(o.mla_use_output_gate);
    CHECK(o.linear_attn_config.kda_layers == std::vector<int64_t>{1, 2, 3, 5, 6, 7});
    CHECK(o.linear_attn_config.full_attn_layers == std::vector<int64_t>{4, 8});
    CHECK(o.linear_attn_config.gate_lower_bound == -5.0);
    CHECK(o.linear_attn_config.use_full_rank_gate);
    CHECK(o.block_size() == 3);
    CHECK(o.num_shared_experts == 2);
    CHECK(o.routed_expert_hidden_size == 32);
    CHECK(o.latent_moe_use_norm);
    CHECK(o.hidden_act == HiddenAct::Situ);
    CHECK(o.routed_scaling_factor == 1.0);
  }
  const ModelOptions o = model_options_from_config_file(kReference / "kl_tiny/config.json");
  CHECK(!o.q_lora_rank);
  CHECK(!o.mla_use_output_gate);
  CHECK(!o.linear_attn_config.gate_lower_bound);
  CHECK(!o.linear_attn_config.use_full_rank_gate);
  CHECK(o.linear_attn_config.kda_layers == std::vector<int64_t>{1, 2, 3, 5, 6});
  CHECK(o.linear_attn_config.full_attn_layers == std::vector<int64_t>{4});
  CHECK(o.block_size() == 0);
  CHECK(!o.routed_expert_hidden_size);
  CHECK(o.num_shared_experts == 1);
  CHECK(o.hidden_act == HiddenAct::Silu);
  CHECK(o.routed_scaling_factor == 2.446);
  CHECK(o.first_k_dense_replace == 1);
}

TEST_CASE("layers are listed by number or by type", "[model]") {
  const std::vector<int64_t> kda{1, 2, 3, 5, 6}, full{4};
  json by_type = kimi_linear();
  by_type["linear_attn_config"].erase("kda_layers");
  by_type["linear_attn_config"].erase("full_attn_layers");
  json by_number = kimi_linear();
  by_number.erase("layer_types");
  json flat_keys = by_type;  // as transformers writes them, without the section
  flat_keys.erase("linear_attn_config");
  for (const json& config : {by_type, by_number, flat_keys}) {
    const ModelOptions o = model_options_from_config(config);
    CHECK(o.linear_attn_config.kda_layers == kda);
    CHECK(o.linear_attn_config.full_attn_layers == full);
    CHECK(o.linear_attn_config.head_dim == 32);
  }
  json contradicting = kimi_linear();
  contradicting["layer_types"][0] = "full_attention";
  CHECK_THROWS_MATCHES(model_options_from_config(contradicting), ConversionError,
                       MessageMatches(ContainsSubstring("layer_types") && ContainsSubstring("kda_layers")));
}

TEST_CASE("dense layers are counted or listed by type", "[model]") {
  json by_type = kimi_linear();
  by_type.erase("first_k_dense_replace");
  CHECK(model_options_from_config(by_type).first_k_dense_replace == 1);
  json by_number = kimi_linear();
  by_number.erase("mlp_layer_types");
  by_number["first_k_dense_replace"] = 2;
  CHECK(model_options_from_config(by_number).first_k_dense_replace == 2);
  by_number.erase("first_k_dense_replace");
  CHECK(model_options_from_config(by_number).first_k_dense_replace == 0);
  json contradicting = kimi_linear();
  contradicting["first_k_dense_replace"] = 2;
  CHECK_THROWS_MATCHES(model_options_from_config(contradicting), ConversionError,
                       MessageMatches(ContainsSubstring("first_k_dense_replace")));
  json scattered = by_type;
  scattered["mlp_layer_types"][3] = "dense";
  CHECK_THROWS_MATCHES(model_options_from_config(scattered), ConversionError, MessageMatches(ContainsSubstring("mlp_layer_types")));
}

TEST_CASE("optional parts may be absent, null or zero", "[model]") {
  json config = k3();
  config["num_shared_experts"] = nullptr;
  config["attn_res_block_size"] = nullptr;
  config["routed_expert_hidden_size"] = nullptr;
  config["q_lora_rank"] = nullptr;
  config["linear_attn_config"]["gate_lower_bound"] = nullptr;
  config["routed_scaling_factor"] = 2.5;
  ModelOptions o = model_options_from_config(config);
  CHECK(o.num_shared_experts == 0);
  CHECK(o.block_size() == 0);
  CHECK(!o.routed_expert_hidden_size);
  CHECK(!o.q_lora_rank);
  CHECK(o.mla_use_output_gate);
  CHECK(!o.linear_attn_config.gate_lower_bound);
  CHECK(o.routed_scaling_factor == 2.5);

  config = k3();
  for (const char* key :
       {"num_experts", "num_experts_per_token", "moe_intermediate_size", "num_shared_experts", "routed_expert_hidden_size"}) {
    config.erase(key);
  }
  o = model_options_from_config(config);
  CHECK(o.num_experts == 0);
  CHECK(o.is_dense(7));
}

TEST_CASE("what this architecture is not is refused by name", "[model]") {
  const std::vector<std::pair<const char*, json>> refused{{"tie_word_embeddings", true},
                                                          {"mla_use_nope", false},
                                                          {"num_expert_group", 2},
                                                          {"topk_group", 2},
                                                          {"moe_layer_freq", 2},
                                                          {"moe_router_activation_func", "softmax"},
                                                          {"moe_renormalize", false},
                                                          {"topk_method", "greedy"},
                                                          {"num_nextn_predict_layers", 1},
                                                          {"attention_bias", true},
                                                          {"hidden_act", "gelu"}};
  for (const auto& [key, value] : refused) {
    json config = k3();
    config[key] = value;
    INFO(key);
    CHECK_THROWS_MATCHES(model_options_from_config(config), ConversionError, MessageMatches(ContainsSubstring(key)));
  }
  json wrapped = config_of("k3_tiny");
  wrapped["tie_word_embeddings"] = true;
  CHECK_THROWS_MATCHES(model_options_from_config(wrapped), ConversionError, MessageMatches(ContainsSubstring("tie_word_embeddings")));
}

TEST_CASE("missing and ill-typed keys are named", "[model]") {
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "kv_lora_rank", "qk_nope_head_dim",
                          "qk_rope_head_dim", "v_head_dim", "intermediate_size", "num_experts_per_token", "moe_intermediate_size"}) {
    INFO(key);
    json config = k3();
    config.erase(key);
    CHECK_THROWS_MATCHES(model_options_from_config(config), ConversionError, MessageMatches(ContainsSubstring(key)));
    config[key] = "many";
    CHECK_THROWS_MATCHES(model_options_from_config(config), ConversionError, MessageMatches(ContainsSubstring(key)));
  }
  json config = k3();
  config["linear_attn_config"].erase("head_dim");
  CHECK_THROWS_MATCHES(model_options_from_config(config), ConversionError,
                       MessageMatches(ContainsSubstring("linear_attn_config.head_dim")));
  CHECK_THROWS_AS(model_options_from_config(json::array()), ConversionError);
}

TEST_CASE("values outside their limits are named", "[model]") {
  const std::vector<std::pair<const char*, json>> wrong{{"vocab_size", 1},
                                                        {"hidden_size", 0},
                                                        {"q_lora_rank", -2},
                                                        {"num_experts_per_token", 9},
                                                        {"attn_res_block_size", 0},
                                                        {"rms_norm_eps", 0},
                                                        {"routed_scaling_factor", -1.0},
                                                        {"moe_intermediate_size", 0},
                                                        {"activation_situ_beta", 0},
                                                        {"first_k_dense_replace", -1}};
  for (const auto& [key, value] : wrong) {
    json config = k3();
    config[key] = value;
    INFO(key);
    CHECK_THROWS_MATCHES(model_options_from_config(config), ConversionError, MessageMatches(ContainsSubstring(key)));
  }
  json config = k3();
  config["linear_attn_config"]["gate_lower_bound"] = -8;
  CHECK_THROWS_MATCHES(model_options_from_config(config), ConversionError,
                       MessageMatches(ContainsSubstring("linear_attn_config.gate_lower_bound")));
}

TEST_CASE("layer lists are a partition of 1 to the number of layers", "[model]") {
  const auto with = [](const std::vector<int64_t>& kda, const std::vector<int64_t>& full) {
    json config = k3();
    config["num_hidden_layers"] = 4;
    config["linear_attn_config"]["kda_layers"] = kda;
    config["linear_attn_config"]["full_attn_layers"] = full;
    return model_options_from_config(config);
  };
  CHECK(with({1, 2, 3}, {4}).is_kda(2));
  CHECK(with({1, 2, 3, 4}, {}).is_kda(3));
  CHECK_FALSE(with({1, 2, 3}, {4}).is_kda(3));
  CHECK_THROWS_MATCHES(with({0, 1, 2}, {4}), ConversionError, MessageMatches(ContainsSubstring("got 0")));
  CHECK_THROWS_MATCHES(with({1, 2, 3}, {3, 4}), ConversionError, MessageMatches(ContainsSubstring("layer 3")));
  CHECK_THROWS_MATCHES(with({1, 2}, {4}), ConversionError, MessageMatches(ContainsSubstring("layer 3")));
}

TEST_CASE("files that cannot be read say which", "[model]") {
  CHECK_THROWS_MATCHES(model_options_from_config_file("/nowhere/config.json"), ConversionError,
                       MessageMatches(ContainsSubstring("/nowhere/config.json")));
  const std::filesystem::path broken = std::filesystem::temp_directory_path() / "longhaul_broken_config.json";
  std::ofstream(broken) << "{\"vocab_size\": ";
  CHECK_THROWS_MATCHES(model_options_from_config_file(broken), ConversionError, MessageMatches(ContainsSubstring("not valid JSON")));
  std::filesystem::remove(broken);
}

}  // namespace
}  // namespace longhaul
