// Tiny models for the tests of this folder: options, packed batches, and a step of a model cut into stages on one rank.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/ignored_target.h"
#include "base/philox.h"
#include "model/parameters.h"
#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"
#include "tests/support/layer_conformance.h"
#include "tests/support/layer_group.h"

namespace longhaul::testing {

// Kimi K3's form: residual blocks of two (the last is short), one dense layer, latent experts.
[[nodiscard]] inline ModelOptions tiny_k3() {
  ModelOptions o;
  o.vocab_size = 19;
  o.hidden_size = 8;
  o.num_hidden_layers = 5;
  o.num_attention_heads = 2;
  o.q_lora_rank = 5;
  o.kv_lora_rank = 4;
  o.qk_nope_head_dim = 3;
  o.qk_rope_head_dim = 2;
  o.v_head_dim = 3;
  o.linear_attn_config = {.num_heads = 2, .head_dim = 4, .kda_layers = {1, 2, 4, 5}, .full_attn_layers = {3}};
  o.attn_res_block_size = 2;
  o.intermediate_size = 9;
  o.num_experts = 4;
  o.num_experts_per_token = 2;
  o.moe_intermediate_size = 5;
  o.routed_expert_hidden_size = 6;
  return o;
}

// Kimi Linear's form of the same sizes: ordinary residuals, softplus decay, low-rank gate, experts on the full width.
[[nodiscard]] inline ModelOptions kimi_linear_of(ModelOptions o) {
  o.q_lora_rank.reset();
  o.mla_use_output_gate = false;
  o.linear_attn_config.gate_lower_bound.reset();
  o.linear_attn_config.use_full_rank_gate = false;
  o.attn_res_block_size.reset();
  o.routed_expert_hidden_size.reset();
  o.routed_scaling_factor = 2.446;
  o.hidden_act = HiddenAct::Silu;
  return o;
}
[[nodiscard]] inline ModelOptions tiny_kimi_linear() { return kimi_linear_of(tiny_k3()); }

struct TinyBatch {
  Tensor ids, targets, cu_seqlens;
  int64_t valid_targets = 0;

  [[nodiscard]] MicroBatch view() const { return {.ids = ids, .targets = targets, .cu_seqlens = cu_seqlens}; }
  [[nodiscard]] int64_t tokens() const { return ids.view().numel(); }
};

[[nodiscard]] inline TinyBatch batch_from(const std::vector<int32_t>& ids, const std::vector<int32_t>& targets,
                                          const std::vector<int64_t>& lengths) {
  const auto n = narrow<int64_t>(ids.size());
  return {.ids = Tensor::from(ids, {n}),
          .targets = Tensor::from(targets, {n}),
          .cu_seqlens = cu_seqlens_of(lengths),
          .valid_targets = narrow<int64_t>(std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t != kIgnoredTarget; }))};
}

// Random documents with next-token targets; the last token of a document has none.
[[nodiscard]] inline TinyBatch batch_of(const std::vector<int64_t>& lengths, int64_t vocab, uint64_t seed = 1) {
  const RandomStream stream{.seed = seed, .stream = stream_id("tiny batch")};
  std::vector<int32_t> ids, targets;
  for (const int64_t length : lengths) {
    for (int64_t t = 0; t < length; ++t) {
      ids.push_back(static_cast<int32_t>(static_cast<double>(stream.uniform(ids.size())) * static_cast<double>(vocab)));
      targets.push_back(kIgnoredTarget);
      if (t > 0) {
        targets[targets.size() - 2] = ids.back();
      }
    }
  }
  return batch_from(ids, targets, lengths);
}

// One stage with random weights and selection biases that depend on names only, so that all cuts give one model.
struct TinyStage {
  Alone alone;
  ExecContext ctx = ExecContext::cpu();
  StageModel model;
  Parameters parameters;
  std::vector<Tensor> biases;
  std::vector<RouterState> routers;

  TinyStage(const ModelOptions& options, const StageRange& range, DType dtype)
      : model(options, range, dtype, alone.group), parameters(model, ctx), routers(model.layers().size()) {
    for (const Parameter& p : parameters.all()) {
      const Tensor value = random_weight(p.spec, p.name);
      std::memcpy(p.value.raw(), value.view().raw(), static_cast<size_t>(p.value.bytes()));
    }
    for (size_t i = 0; i < routers.size(); ++i) {
      if (!model.layers()[i].is_dense) {
        biases.push_back(random_tensor(dtype, {options.num_experts}, fmt::format("bias {}", model.layers()[i].layer), 0.1));
        routers[i].bias = biases.back();
      }
    }
  }
};

struct ModelResult {
  double loss_sum = 0;
  Tensor logits;                                      // [tokens, vocab]
  std::map<std::string, std::vector<double>> gradients;  // of the loss sum times grad_scale
};

[[nodiscard]] inline StageRange whole(const ModelOptions& options) {
  return {.first_layer = 0, .last_layer = options.num_hidden_layers, .has_embedding = true, .has_head = true};
}

// Forward and backward of a model cut in front of the layers `cuts`.
[[nodiscard]] inline ModelResult run_model(const ModelOptions& options, DType dtype, const TinyBatch& batch, double grad_scale,
                                           const std::vector<int64_t>& cuts = {}) {
  std::vector<std::unique_ptr<TinyStage>> stages;
  for (const StageRange& range : cut_stages_at(options, cuts)) {
    stages.push_back(std::make_unique<TinyStage>(options, range, dtype));
  }
  ModelResult result{.logits = nan_tensor(dtype, {batch.tokens(), options.vocab_size}), .gradients = {}};
  const StageModel::Loss loss{.sum = TensorView(&result.loss_sum, DType::F64, {1}), .grad_scale = grad_scale};
  ExecContext ctx = ExecContext::cpu();
  Arena keep(Device{}, "keep", 0, Arena::Growth::Chunked);
  std::vector<StageModel::Saved> saved;
  std::vector<TensorView> sources;
  for (const auto& stage : stages) {
    const Parameters& p = stage->parameters;
    saved.push_back(stage->model.forward(ctx, keep, p.values(), stage->routers, batch.view(), sources, loss, StageModel::Purpose::Train,
                                         &p.gradients()));
    sources = saved.back().after.sources();
  }
  stages.back()->model.logits(ctx, stages.back()->parameters.values(), saved.back(), result.logits);
  std::vector<TensorView> dsources;
  for (size_t s = stages.size(); s-- > 0;) {
    const Parameters& p = stages[s]->parameters;
    dsources = stages[s]->model.backward(ctx, keep, p.values(), saved[s], dsources, p.gradients());
    for (const Parameter& parameter : p.all()) {
      result.gradients[parameter.name] = to_doubles(parameter.gradient);
    }
  }
  return result;
}

}  // namespace longhaul::testing
