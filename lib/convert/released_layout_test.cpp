#include "convert/released_layout.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "convert/convert_test_support.h"
#include "convert/released_config.h"
#include "convert/shards.h"
#include "model/config_json.h"

namespace longhaul {
namespace {

using convert_test::tiny_k3;
using convert_test::tiny_kimi_linear;
using Catch::Matchers::ContainsSubstring;

// The released Kimi K3 (arXiv:2607.24653, table 1, and its config.json).
ModelOptions released_k3() {
  ModelOptions m;
  m.vocab_size = 163840;
  m.hidden_size = 7168;
  m.num_hidden_layers = 93;
  m.num_attention_heads = 96;
  m.q_lora_rank = 1536;
  m.kv_lora_rank = 512;
  m.qk_nope_head_dim = 128;
  m.qk_rope_head_dim = 64;
  m.v_head_dim = 128;
  m.linear_attn_config = {.num_heads = 96, .head_dim = 128};
  for (int64_t layer = 1; layer <= 93; ++layer) {
    (layer % 4 == 0 || layer == 93 ? m.linear_attn_config.full_attn_layers : m.linear_attn_config.kda_layers).push_back(layer);
  }
  m.attn_res_block_size = 12;
  m.intermediate_size = 33792;
  m.num_experts = 896;
  m.num_experts_per_token = 16;
  m.num_shared_experts = 2;
  m.moe_intermediate_size = 3072;
  m.routed_expert_hidden_size = 3584;
  return m;
}

// The released Kimi-Linear-48B-A3B (arXiv:2510.26692, and its config.json).
ModelOptions released_kimi_linear() {
  ModelOptions m = tiny_kimi_linear();
  m.vocab_size = 163840;
  m.hidden_size = 2304;
  m.num_hidden_layers = 27;
  m.num_attention_heads = 32;
  m.kv_lora_rank = 512;
  m.qk_nope_head_dim = 128;
  m.qk_rope_head_dim = 64;
  m.v_head_dim = 128;
  m.linear_attn_config = {.num_heads = 32, .head_dim = 128, .gate_lower_bound = std::nullopt, .use_full_rank_gate = false};
  for (int64_t layer = 1; layer <= 27; ++layer) {
    (layer % 4 == 0 || layer == 27 ? m.linear_attn_config.full_attn_layers : m.linear_attn_config.kda_layers).push_back(layer);
  }
  m.intermediate_size = 9216;
  m.num_experts = 256;
  m.num_experts_per_token = 8;
  m.num_shared_experts = 1;
  m.moe_intermediate_size = 1024;
  return m;
}

struct Totals {
  int64_t tensors = 0;
  int64_t bytes = 0;
  int64_t values = 0;
};
Totals totals_of(const std::vector<ReleasedSpec>& specs) {
  Totals totals;
  for (const ReleasedSpec& spec : specs) {
    for (const SafetensorsDeclaration& declaration : spec.declarations()) {
      int64_t bits = safetensors_bits(declaration.dtype);
      for (const int64_t size : declaration.shape) {
        bits *= size;
      }
      ++totals.tensors;
      totals.bytes += bits / 8;
    }
    int64_t values = 1;
    for (const int64_t size : spec.shape) {
      values *= size;
    }
    totals.values += values;
  }
  return totals;
}

std::map<std::string, std::string> table_of(const std::vector<ReleasedSpec>& specs) {
  std::map<std::string, std::string> table;
  for (const ReleasedSpec& spec : specs) {
    for (const SafetensorsDeclaration& d : spec.declarations()) {
      CHECK(table.emplace(d.name, fmt::format("{} {}", d.dtype, fmt::join(d.shape, "x"))).second);
    }
  }
  return table;
}

}  // namespace

TEST_CASE("the layout of the released Kimi K3 has its number of tensors, its bytes and its parameters", "[convert]") {
  const Totals totals = totals_of(released_layout(released_k3(), {.weights = ReleasedType::BF16, .experts = ReleasedType::Mxfp4}));
  constexpr int64_t kVision = 27 * 6 + 3 + 3;
  CHECK(totals.tensors == 497220 - kVision);
  CHECK(std::abs(static_cast<double>(totals.values) - 2.7795e12) < 0.0001e12);
  // The published 1453.66 counts units of 2^30 bytes, the vision tower's 401.2 million values in bf16 and the headers of the
  // files, about 175 bytes a tensor; neither of the two is in this layout.
  const double files = static_cast<double>(totals.bytes) + 2 * 401.2e6 + 175.0 * 497220;
  CHECK(std::abs(files / 0x1p30 - 1453.66) < 0.01);
}

TEST_CASE("the layout of the released Kimi-Linear has its number of tensors and its parameters", "[convert]") {
  CHECK(released_format(released_kimi_linear()) == ReleasedFormat::KimiLinear);
  const Totals totals = totals_of(released_layout(released_kimi_linear(), {}));
  CHECK(totals.tensors == 20493);
  CHECK(std::abs(static_cast<double>(totals.values) - 49.12e9) < 0.01e9);
}

TEST_CASE("names, shapes and types of a Kimi K3 export are those of the release", "[convert]") {
  // Written down from the released tensor listing, with the widths of tiny_k3().
  std::map<std::string, std::string> wanted{{"language_model.lm_head.weight", "BF16 19x12"},
                                            {"language_model.model.embed_tokens.weight", "BF16 19x12"},
                                            {"language_model.model.norm.weight", "BF16 12"},
                                            {"language_model.model.output_attn_res_norm.weight", "BF16 12"},
                                            {"language_model.model.output_attn_res_proj.weight", "BF16 1x12"}};
  const auto add = [&](int layer, const std::string& name, const std::string& form) {
    wanted[fmt::format("language_model.model.layers.{}.{}", layer, name)] = form;
  };
  for (int layer = 0; layer < 4; ++layer) {
    for (const char* norm : {"input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm"}) {
      add(layer, std::string(norm) + ".weight", "BF16 12");
    }
    add(layer, "self_attention_res_proj.weight", "BF16 1x12");
    add(layer, "mlp_res_proj.weight", "BF16 1x12");
    if (layer < 3) {
      for (const char* which : {"q", "k", "v"}) {
        add(layer, fmt::format("self_attn.{}_proj.weight", which), "BF16 21x12");
        add(layer, fmt::format("self_attn.{}_conv1d.weight", which), "F32 21x1x4");
      }
      add(layer, "self_attn.f_a_proj.weight", "BF16 7x12");
      add(layer, "self_attn.f_b_proj.weight", "BF16 21x7");
      add(layer, "self_attn.b_proj.weight", "BF16 3x12");
      add(layer, "self_attn.A_log", "F32 128");
      add(layer, "self_attn.dt_bias", "F32 21");
      add(layer, "self_attn.o_norm.weight", "F32 7");
      add(layer, "self_attn.g_proj.weight", "BF16 21x12");
      add(layer, "self_attn.o_proj.weight", "BF16 12x21");
    } else {
      add(layer, "self_attn.q_a_proj.weight", "BF16 6x12");
      add(layer, "self_attn.q_a_layernorm.weight", "BF16 6");
      add(layer, "self_attn.q_b_proj.weight", "BF16 10x6");
      add(layer, "self_attn.kv_a_proj_with_mqa.weight", "BF16 7x12");
      add(layer, "self_attn.kv_a_layernorm.weight", "BF16 5");
      add(layer, "self_attn.kv_b_proj.weight", "BF16 14x5");
      add(layer, "self_attn.g_proj.weight", "BF16 8x12");
      add(layer, "self_attn.o_proj.weight", "BF16 12x8");
    }
    if (layer == 0) {
      add(layer, "mlp.gate_proj.weight", "BF16 10x12");
      add(layer, "mlp.up_proj.weight", "BF16 10x12");
      add(layer, "mlp.down_proj.weight", "BF16 12x10");
      continue;
    }
    add(layer, "block_sparse_moe.gate.weight", "BF16 3x12");
    add(layer, "block_sparse_moe.gate.e_score_correction_bias", "F32 3");
    add(layer, "block_sparse_moe.routed_expert_down_proj.weight", "BF16 32x12");
    add(layer, "block_sparse_moe.routed_expert_norm.weight", "BF16 32");
    add(layer, "block_sparse_moe.routed_expert_up_proj.weight", "BF16 12x32");
    add(layer, "block_sparse_moe.shared_experts.gate_proj.weight", "BF16 128x12");
    add(layer, "block_sparse_moe.shared_experts.up_proj.weight", "BF16 128x12");
    add(layer, "block_sparse_moe.shared_experts.down_proj.weight", "BF16 12x128");
    for (int expert = 0; expert < 3; ++expert) {
      for (const char* which : {"w1", "w3"}) {
        add(layer, fmt::format("block_sparse_moe.experts.{}.{}.weight_packed", expert, which), "U8 64x16");
        add(layer, fmt::format("block_sparse_moe.experts.{}.{}.weight_scale", expert, which), "U8 64x1");
      }
      add(layer, fmt::format("block_sparse_moe.experts.{}.w2.weight_packed", expert), "U8 32x32");
      add(layer, fmt::format("block_sparse_moe.experts.{}.w2.weight_scale", expert), "U8 32x2");
    }
  }
  CHECK(table_of(released_layout(tiny_k3(), {.weights = ReleasedType::BF16, .experts = ReleasedType::Mxfp4})) == wanted);
}

TEST_CASE("a Kimi-Linear export has its own exceptions", "[convert]") {
  const auto table = table_of(released_layout(tiny_kimi_linear(), {}));
  CHECK(table.at("model.layers.0.self_attn.A_log") == "F32 1x1x3x1");
  CHECK(table.at("model.layers.0.self_attn.dt_bias") == "F32 21");
  CHECK(table.at("model.layers.0.self_attn.o_norm.weight") == "BF16 7");
  CHECK(table.at("model.layers.0.self_attn.q_conv1d.weight") == "BF16 21x1x4");
  CHECK(table.at("model.layers.0.self_attn.g_a_proj.weight") == "BF16 7x12");
  CHECK(table.at("model.layers.3.self_attn.q_proj.weight") == "BF16 10x12");
  CHECK(table.at("model.layers.1.block_sparse_moe.gate.e_score_correction_bias") == "BF16 3");
  CHECK(table.at("model.layers.1.block_sparse_moe.experts.2.w2.weight") == "BF16 12x64");
}

TEST_CASE("experts that cannot be cut into groups are refused before anything is written", "[convert]") {
  ModelOptions odd = tiny_k3();
  odd.moe_intermediate_size = 40;
  CHECK_THROWS_WITH(released_layout(odd, {.weights = ReleasedType::BF16, .experts = ReleasedType::Mxfp4}), ContainsSubstring("moe_intermediate_size is 40"));
  CHECK_NOTHROW(released_layout(odd, {}));
}

TEST_CASE("config.json gives back the options it was written from", "[convert]") {
  for (const ModelOptions& model : {tiny_k3(), tiny_kimi_linear(), released_k3(), released_kimi_linear()}) {
    const std::string text = released_config({.model = model});
    const ModelOptions back = model_options_from_config(nlohmann::json::parse(text));
    CHECK(model_recipe_text(back) == model_recipe_text(model));
  }
}

TEST_CASE("config.json of Kimi K3 has the released keys", "[convert]") {
  const auto root = nlohmann::json::parse(released_config({.model = released_k3(), .types = {.experts = ReleasedType::Mxfp4}}));
  CHECK(root.at("architectures") == nlohmann::json{"KimiK3ForConditionalGeneration"});
  CHECK(root.at("model_type") == "kimi_k3");
  CHECK(root.at("dtype") == "bfloat16");
  CHECK(root.at("bos_token_id") == 163584);
  CHECK(root.at("eos_token_id") == 163586);
  CHECK(root.at("pad_token_id") == 163839);
  CHECK(root.at("media_placeholder_token_id") == 163605);
  CHECK(root.at("ignore_index") == -100);
  const auto& text = root.at("text_config");
  CHECK(text.at("architectures") == nlohmann::json{"KimiLinearForCausalLM"});
  const nlohmann::json wanted = {{"model_type", "kimi_linear"}, {"hidden_size", 7168}, {"intermediate_size", 33792}, {"num_hidden_layers", 93},
                                 {"num_attention_heads", 96}, {"num_key_value_heads", 96}, {"q_lora_rank", 1536}, {"kv_lora_rank", 512},
                                 {"qk_nope_head_dim", 128}, {"qk_rope_head_dim", 64}, {"v_head_dim", 128}, {"mla_use_nope", true},
                                 {"mla_use_output_gate", true}, {"hidden_act", "situ"}, {"activation_situ_beta", 4.0},
                                 {"activation_situ_linear_beta", 25.0}, {"attn_res_block_size", 12}, {"first_k_dense_replace", 1},
                                 {"moe_layer_freq", 1}, {"num_experts", 896}, {"num_experts_per_token", 16}, {"num_shared_experts", 2},
                                 {"moe_intermediate_size", 3072}, {"routed_expert_hidden_size", 3584}, {"latent_moe_use_norm", true},
                                 {"moe_renormalize", true}, {"moe_router_activation_func", "sigmoid"}, {"topk_method", "noaux_tc"},
                                 {"use_grouped_topk", true}, {"num_expert_group", 1}, {"topk_group", 1}, {"routed_scaling_factor", 1.0},
                                 {"num_nextn_predict_layers", 0}, {"rms_norm_eps", 1e-5}, {"initializer_range", 0.02},
                                 {"max_position_embeddings", 1048576}, {"vocab_size", 163840}, {"use_cache", true}};
  for (const auto& [key, value] : wanted.items()) {
    CAPTURE(key);
    CHECK(text.at(key) == value);
  }
  const auto& linear = text.at("linear_attn_config");
  CHECK(linear.at("gate_lower_bound") == -5.0);
  CHECK(linear.at("use_full_rank_gate") == true);
  CHECK(linear.at("full_attn_layers").back() == 93);
  const auto& quantization = text.at("quantization_config");
  CHECK(quantization.at("format") == "mxfp4-pack-quantized");
  CHECK(quantization.at("config_groups").at("group_0").at("weights").at("group_size") == 32);
  CHECK_FALSE(root.contains("vision_config"));
}

TEST_CASE("shards are cut by size, and sizes are read as the field writes them", "[convert]") {
  const auto cut = [](const std::vector<int64_t>& sizes, int64_t limit) {
    std::vector<ShardedSize> tensors;
    for (const int64_t size : sizes) {
      tensors.push_back({.bytes = size, .header_bytes = 100});
    }
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (const Shard& shard : cut_into_shards(tensors, limit)) {
      ranges.emplace_back(shard.first, shard.last);
    }
    return ranges;
  };
  using Ranges = std::vector<std::pair<int64_t, int64_t>>;
  CHECK(cut({}, 10) == Ranges{{0, 0}});
  CHECK(cut({5, 5, 1}, 10) == Ranges{{0, 2}, {2, 3}});
  CHECK(cut({50, 1, 9, 60}, 10) == Ranges{{0, 1}, {1, 3}, {3, 4}});  // what is larger than the limit stands alone
  CHECK(shard_name(0, 1) == "model.safetensors");
  CHECK(shard_name(1, 12) == "model-00002-of-00012.safetensors");
  CHECK(parse_size("5GB") == 5'000'000'000);
  CHECK(parse_size("2GiB") == int64_t{2} << 30);
  CHECK(parse_size("77") == 77);
  for (const char* bad : {"", "GB", "5 GB", "-1GB", "0", "1.5GB", "5gb", "99999999999TB"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_size(bad), RecipeError);
  }
}

}  // namespace longhaul
