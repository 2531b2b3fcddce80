// Parameters and operations against a hand count, the published size of Kimi K3 and Kimi Linear, and the tensors themselves.
#include "model/flops.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include "model/model_test_support.h"

namespace longhaul {
namespace {

using Catch::Approx;

// Two layers: KDA with a dense feed-forward, MLA with experts.
ModelOptions two_layers() {
  ModelOptions o = testing::tiny_k3();
  o.num_hidden_layers = 2;
  o.linear_attn_config.kda_layers = {1};
  o.linear_attn_config.full_attn_layers = {2};
  return o;
}

TEST_CASE("two layers agree with a count by hand", "[model]") {
  // hidden 8, vocabulary 19.
  // KDA, 2 heads of 4: q, k, v and output and gate 5 * 8 * 8, three convolutions of 8 channels and 4 taps 96,
  // decay 4 * 8 + 8 * 4, beta 2 * 8.
  constexpr int64_t kKda = 320 + 96 + 64 + 16;
  constexpr int64_t kDense = 3 * 8 * 9;
  // MLA, 2 heads: query 5 * 8 + 10 * 5, key and value 6 * 8 + 12 * 4, gate and output 2 * 8 * 6.
  constexpr int64_t kMla = 90 + 96 + 96;
  // Experts: router 4 * 8, latent projections 2 * 8 * 6, shared 3 * 8 * 5, two of four experts 3 * 5 * 6 each.
  constexpr int64_t kMoe = 32 + 96 + 120 + 2 * 90;
  const ModelOptions o = two_layers();
  CHECK(active_parameters(o, 0) == kKda + kDense);
  CHECK(active_parameters(o, 1) == kMla + kMoe);
  CHECK(active_parameters(o) == kKda + kDense + kMla + kMoe + 19 * 8);

  // KDA core: 6 * 16 + 3 * 64 * 4 + 64 * 64 a head. MLA core: 2 * (5 + 3) * (T + 1) / 2 a head.
  constexpr double kTokens = 100;
  const double kda = 2.0 * (kKda + kDense) + 2 * (96 + 768 + 4096);
  const double mla = 2.0 * (kMla + kMoe) + 2 * 8 * (kTokens + 1);
  CHECK(forward_flops(o, 0, kTokens) == kda);
  CHECK(forward_flops(o, 1, kTokens) == mla);
  CHECK(training_flops_per_token(o, kTokens) == 3 * (kda + mla + 2.0 * 19 * 8));
}

TEST_CASE("twice the tokens cost KDA twice and the MLA core four times", "[model]") {
  const ModelOptions o = two_layers();
  const auto core = [&](int64_t layer, double tokens) {
    return tokens * (forward_flops(o, layer, tokens) - 2.0 * static_cast<double>(active_parameters(o, layer)));
  };
  for (const double tokens : {8192.0, 65536.0}) {
    CHECK(core(0, 2 * tokens) == 2 * core(0, tokens));
    CHECK(core(1, 2 * tokens) / core(1, tokens) == Approx(4).epsilon(1e-3));
    CHECK(2 * tokens * forward_flops(o, 0, 2 * tokens) == 2 * (tokens * forward_flops(o, 0, tokens)));
  }
}

TEST_CASE("experts count when a token visits them", "[model]") {
  const ModelOptions o = two_layers();
  ModelOptions more = o;
  more.num_experts += 10;
  CHECK(active_parameters(more, 1) - active_parameters(o, 1) == 10 * o.hidden_size);  // their rows of the router
  CHECK(total_parameters(more) - total_parameters(o) == 10 * (o.hidden_size + 3 * 5 * 6));
  more = o;
  more.num_experts_per_token = 3;
  CHECK(active_parameters(more, 1) - active_parameters(o, 1) == 3 * 5 * 6);
  more = o;
  more.num_shared_experts = 2;
  CHECK(active_parameters(more, 1) - active_parameters(o, 1) == 3 * 8 * 5);
}

ModelOptions kimi_k3() {
  ModelOptions o;
  o.vocab_size = 163840;
  o.hidden_size = 7168;
  o.num_hidden_layers = 93;
  o.num_attention_heads = 96;
  o.q_lora_rank = 1536;
  o.kv_lora_rank = 512;
  o.qk_nope_head_dim = 128;
  o.qk_rope_head_dim = 64;
  o.v_head_dim = 128;
  o.linear_attn_config = {.num_heads = 96, .head_dim = 128, .kda_layers = {}, .full_attn_layers = {93}};
  for (int64_t number = 1; number <= 92; ++number) {
    (number % 4 == 0 ? o.linear_attn_config.full_attn_layers : o.linear_attn_config.kda_layers).push_back(number);
  }
  o.attn_res_block_size = 12;
  o.intermediate_size = 33792;
  o.num_experts = 896;
  o.num_experts_per_token = 16;
  o.num_shared_experts = 2;
  o.moe_intermediate_size = 3072;
  o.routed_expert_hidden_size = 3584;
  return o;
}

ModelOptions kimi_linear_48b() {
  ModelOptions o = testing::tiny_kimi_linear();
  o.vocab_size = 163840;
  o.hidden_size = 2304;
  o.num_hidden_layers = 27;
  o.num_attention_heads = 32;
  o.kv_lora_rank = 512;
  o.qk_nope_head_dim = 128;
  o.qk_rope_head_dim = 64;
  o.v_head_dim = 128;
  o.linear_attn_config.num_heads = 32;
  o.linear_attn_config.head_dim = 128;
  o.linear_attn_config.kda_layers.clear();
  o.linear_attn_config.full_attn_layers = {27};
  for (int64_t number = 1; number <= 26; ++number) {
    (number % 4 == 0 ? o.linear_attn_config.full_attn_layers : o.linear_attn_config.kda_layers).push_back(number);
  }
  o.intermediate_size = 9216;
  o.num_experts = 256;
  o.num_experts_per_token = 8;
  o.num_shared_experts = 1;
  o.moe_intermediate_size = 1024;
  return o;
}

TEST_CASE("the published sizes come out", "[model]") {
  CHECK(static_cast<double>(total_parameters(kimi_k3())) == Approx(2.7795e12).epsilon(2e-5));
  CHECK(static_cast<double>(active_parameters(kimi_k3())) == Approx(104.19e9).epsilon(1e-4));  // ours without 5.5 million in vectors
  CHECK(static_cast<double>(total_parameters(kimi_linear_48b())) == Approx(49.12e9).epsilon(2e-4));
}

TEST_CASE("the total is the number of elements of all parameters", "[model]") {
  const testing::Alone alone;
  std::vector<ModelOptions> models{testing::tiny_k3(), testing::tiny_kimi_linear(), two_layers()};
  models.push_back(testing::tiny_k3());
  models.back().first_k_dense_replace = 2;
  models.back().num_shared_experts = 0;
  models.back().latent_moe_use_norm = false;
  models.push_back(testing::tiny_k3());
  models.back().num_experts = 0;
  models.back().q_lora_rank.reset();
  for (const ModelOptions& o : models) {
    const StageModel model(o, testing::whole(o), DType::F32, alone.group);
    StageModel::Weights<ParameterSpec> specs = model.weights();
    int64_t total = 0;
    model.for_each(specs, [&](const std::string&, const ParameterSpec& spec) { total += spec.shape.numel(); });
    CHECK(total_parameters(o) == total);
  }
}

}  // namespace
}  // namespace longhaul
