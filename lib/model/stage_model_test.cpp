// Whole tiny models: finite differences, cuts into stages, packed documents, planned memory.
#include "model/stage_model.h"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

#include "model/model_test_support.h"

namespace longhaul {
namespace {

using namespace testing;

struct Form {
  const char* name;
  ModelOptions options;
};

std::vector<Form> all_forms() {
  std::vector<Form> forms{{"K3", tiny_k3()}, {"Kimi Linear", tiny_kimi_linear()}};
  ModelOptions o = tiny_k3();
  o.attn_res_block_size = 1;
  o.first_k_dense_replace = 0;
  o.num_shared_experts = 0;
  forms.push_back({"blocks of one, no dense layer, no shared experts", o});
  o = tiny_k3();
  o.attn_res_block_size = 4;
  o.first_k_dense_replace = 2;
  o.latent_moe_use_norm = false;
  o.linear_attn_config.gate_lower_bound.reset();
  forms.push_back({"blocks of four, two dense layers, latent experts without norm, softplus decay", o});
  o = tiny_k3();
  o.attn_res_block_size = 9;  // one block
  o.num_experts = 0;          // all layers dense
  o.q_lora_rank.reset();
  forms.push_back({"one block, no experts, full-rank query with gate", o});
  return forms;
}

const std::vector<int64_t> kLengths{7, 1, 19, 4};

TEST_CASE("the loss of a whole model has the gradients of finite differences", "[model]") {
  for (const Form& form : all_forms()) {
    INFO(form.name);
    TinyStage stage(form.options, whole(form.options), DType::F64);
    const TinyBatch batch = batch_of({9, 1, 5}, form.options.vocab_size);
    const double scale = 1.0 / static_cast<double>(batch.valid_targets);
    const std::map<std::string, std::vector<double>> gradients = run_model(form.options, DType::F64, batch, scale).gradients;
    ExecContext ctx = ExecContext::cpu();
    Arena keep(Device{}, "keep", 0, Arena::Growth::Chunked);
    const auto loss = [&] {
      const ArenaScope scope(keep);
      double sum = 0;
      (void)stage.model.forward(ctx, keep, stage.parameters.values(), stage.routers, batch.view(), {},
                                {.sum = TensorView(&sum, DType::F64, {1})}, StageModel::Purpose::LossOnly);
      return sum * scale;
    };
    for (const Parameter& p : stage.parameters.all()) {
      INFO(p.name);
      const Tensor analytic = Tensor::from(gradients.at(p.name), p.value.shape());
      // Several layers deep the third derivative is large, so the step is small.
      CHECK(gradient_error(p.value, analytic, loss, {.step = 1e-6, .max_elements = 3}) < 1e-5);
    }
  }
}

void check_same(const ModelResult& a, const ModelResult& b) {
  CHECK(a.loss_sum == b.loss_sum);
  CHECK(bitwise_equal(a.logits, b.logits));
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (const auto& [name, gradient] : a.gradients) {
    INFO(name);
    CHECK(gradient == b.gradients.at(name));
  }
}

TEST_CASE("a model cut into stages computes the same bits", "[model]") {
  for (const DType dtype : {DType::F64, DType::F32}) {
    for (const Form& form : all_forms()) {
      INFO(form.name);
      const TinyBatch batch = batch_of(kLengths, form.options.vocab_size);
      const ModelResult one = run_model(form.options, dtype, batch, 0.1);
      const std::vector<int64_t> cuts = legal_cuts(form.options);
      check_same(one, run_model(form.options, dtype, batch, 0.1, cuts));
      if (!cuts.empty()) {
        check_same(one, run_model(form.options, dtype, batch, 0.1, {cuts.back()}));
      }
    }
  }
}

TEST_CASE("a token of one document changes nothing in the next", "[model]") {
  for (const DType dtype : {DType::F64, DType::F32}) {
    for (const Form& form : all_forms()) {
      INFO(form.name);
      const TinyBatch batch = batch_of(kLengths, form.options.vocab_size);
      const Tensor before = run_model(form.options, dtype, batch, 1).logits;
      constexpr int64_t kChanged = 10, kEnd = 7 + 1 + 19;  // inside the third document
      int32_t& id = batch.ids.values<int32_t>()[kChanged];
      id = (id + 1) % static_cast<int32_t>(form.options.vocab_size);
      const Tensor after = run_model(form.options, dtype, batch, 1).logits;
      for (int64_t t = 0; t < batch.tokens(); ++t) {
        INFO("token " << t);
        if (t < kChanged || t >= kEnd) {
          CHECK(bitwise_equal(before.view()[t], after.view()[t]));
        }
      }
      CHECK(!bitwise_equal(before.view()[kChanged], after.view()[kChanged]));
      CHECK(!bitwise_equal(before.view()[kEnd - 1], after.view()[kEnd - 1]));
    }
  }
}

TEST_CASE("packed documents have the loss and gradients of separate ones", "[model]") {
  for (const Form& form : all_forms()) {
    INFO(form.name);
    const TinyBatch batch = batch_of(kLengths, form.options.vocab_size);
    const double scale = 1.0 / static_cast<double>(batch.valid_targets);
    const ModelResult packed = run_model(form.options, DType::F64, batch, scale);
    double loss_sum = 0;
    std::map<std::string, std::vector<double>> sums;
    int64_t first = 0;
    for (const int64_t length : kLengths) {
      const auto part = [&](const Tensor& all) {
        const auto begin = all.values<int32_t>().begin() + first;
        return std::vector<int32_t>(begin, begin + length);
      };
      const ModelResult alone = run_model(form.options, DType::F64, batch_from(part(batch.ids), part(batch.targets), {length}), scale);
      CHECK(bitwise_equal(alone.logits, packed.logits.view().slice(0, first, first + length)));
      loss_sum += alone.loss_sum;
      for (const auto& [name, gradient] : alone.gradients) {
        std::vector<double>& sum = sums[name];
        sum.resize(gradient.size());
        std::transform(sum.begin(), sum.end(), gradient.begin(), sum.begin(), std::plus<>());
      }
      first += length;
    }
    CHECK(std::abs(loss_sum - packed.loss_sum) < 1e-12 * packed.loss_sum);
    for (const auto& [name, sum] : sums) {
      const Shape flat{narrow<int64_t>(sum.size())};
      const Difference d = difference(Tensor::from(sum, flat), Tensor::from(packed.gradients.at(name), flat));
      INFO(name << ": " << d.text);
      CHECK(d.within(1e-12));
    }
  }
}

// --- memory ---
struct StepBytes {
  int64_t keep = 0, scratch = 0;
};

// A training step with shapes only.
StepBytes plan_step(const TinyStage& stage, const TinyBatch& batch) {
  StageModel::Weights<TensorView> values = stage.parameters.values(), gradients = stage.parameters.gradients();
  const auto forget_data = [](const std::string&, TensorView& view) { view = {nullptr, view.dtype(), view.shape()}; };
  stage.model.for_each(values, forget_data);
  stage.model.for_each(gradients, forget_data);
  std::vector<RouterState> routers = stage.routers;
  for (RouterState& router : routers) {
    if (router.bias.is_present()) {
      forget_data("", router.bias);
    }
  }
  const auto planned = [](const TensorView& view) { return TensorView(nullptr, view.dtype(), view.shape()); };
  const MicroBatch shapes{.ids = planned(batch.ids), .targets = planned(batch.targets), .cu_seqlens = planned(batch.cu_seqlens)};
  ExecContext ctx = ExecContext::plan(Device{});
  Arena keep = Arena::measuring(Device{}, "keep");
  const auto saved = stage.model.forward(ctx, keep, values, routers, shapes, {}, {.sum = TensorView(nullptr, DType::F64, {1})},
                                         StageModel::Purpose::Train, &gradients);
  (void)stage.model.backward(ctx, keep, values, saved, {}, gradients);
  return {.keep = keep.high_water_bytes(), .scratch = ctx.scratch().high_water_bytes()};
}

double run_step(TinyStage& stage, const TinyBatch& batch, ExecContext& ctx, Arena& keep) {
  stage.parameters.zero_gradients(ctx);
  double sum = 0;
  const Parameters& p = stage.parameters;
  const auto saved =
      stage.model.forward(ctx, keep, p.values(), stage.routers, batch.view(), {},
                          {.sum = TensorView(&sum, DType::F64, {1}), .grad_scale = 0.1}, StageModel::Purpose::Train, &p.gradients());
  (void)stage.model.backward(ctx, keep, p.values(), saved, {}, p.gradients());
  return sum;
}

TEST_CASE("a step uses exactly the memory that planning finds, and repeats its bits in memory full of NaN", "[model]") {
  for (const DType dtype : {DType::F64, DType::F32}) {
    for (const Form& form : all_forms()) {
      INFO(form.name);
      TinyStage stage(form.options, whole(form.options), dtype);
      const TinyBatch batch = batch_of(kLengths, form.options.vocab_size);
      const StepBytes planned = plan_step(stage, batch);
      ExecContext ctx = ExecContext::cpu();
      Arena keep(Device{}, "keep", 0, Arena::Growth::Chunked);
      const double loss = run_step(stage, batch, ctx, keep);
      CHECK(keep.high_water_bytes() == planned.keep);
      CHECK(ctx.scratch().high_water_bytes() == planned.scratch);
      const std::vector<double> dense = to_doubles(stage.parameters.dense_gradients());
      const std::vector<double> experts = to_doubles(stage.parameters.expert_gradients());

      ExecContext nan_ctx(Device{}, ExecContext::Mode::Execute, nan_arena("scratch", planned.scratch));
      Arena nan_keep = nan_arena("keep", planned.keep);
      CHECK(run_step(stage, batch, nan_ctx, nan_keep) == loss);
      CHECK(to_doubles(stage.parameters.dense_gradients()) == dense);
      CHECK(to_doubles(stage.parameters.expert_gradients()) == experts);
    }
  }
}

TEST_CASE("tokens without a target add nothing", "[model]") {
  const ModelOptions options = tiny_k3();
  TinyBatch batch = batch_of({6}, options.vocab_size);
  std::ranges::fill(batch.targets.values<int32_t>(), kIgnoredTarget);
  const ModelResult nothing = run_model(options, DType::F64, batch, 1);
  CHECK(nothing.loss_sum == 0);
  for (const auto& [name, gradient] : nothing.gradients) {
    INFO(name);
    CHECK(gradient == std::vector<double>(gradient.size()));
  }
}

TEST_CASE("a micro-batch without tokens has no loss and no gradient", "[model]") {
  for (const Form& form : all_forms()) {
    INFO(form.name);
    const ModelResult nothing = run_model(form.options, DType::F32, batch_of({0}, form.options.vocab_size), 1, legal_cuts(form.options));
    CHECK(nothing.loss_sum == 0);
    for (const auto& [name, gradient] : nothing.gradients) {
      INFO(name);
      CHECK(gradient == std::vector<double>(gradient.size()));
    }
  }
}

TEST_CASE("the loss alone needs no gradients and is the same", "[model]") {
  const ModelOptions options = tiny_k3();
  TinyStage stage(options, whole(options), DType::F32);
  const TinyBatch batch = batch_of(kLengths, options.vocab_size);
  ExecContext ctx = ExecContext::cpu();
  Arena keep(Device{}, "keep", 0, Arena::Growth::Chunked);
  double sum = 0;
  (void)stage.model.forward(ctx, keep, stage.parameters.values(), stage.routers, batch.view(), {},
                            {.sum = TensorView(&sum, DType::F64, {1})}, StageModel::Purpose::LossOnly);
  CHECK(sum == run_model(options, DType::F32, batch, 1).loss_sum);
  const std::vector<double> gradients = to_doubles(stage.parameters.dense_gradients());
  CHECK(gradients == std::vector<double>(gradients.size()));
}

TEST_CASE("the first layer's attention site mixes nothing and has no gradient", "[model]") {
  const ModelResult result = run_model(tiny_k3(), DType::F64, batch_of(kLengths, 19), 1);
  for (const char* name : {"model.layers.0.self_attention_res_norm.weight", "model.layers.0.self_attention_res_proj.weight"}) {
    const std::vector<double>& gradient = result.gradients.at(name);
    CHECK(gradient == std::vector<double>(gradient.size()));
  }
  const std::vector<double>& used = result.gradients.at("model.layers.0.mlp_res_proj.weight");
  CHECK(used != std::vector<double>(used.size()));
}

}  // namespace
}  // namespace longhaul
