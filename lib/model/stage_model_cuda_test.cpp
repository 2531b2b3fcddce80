// Whole models on a GPU against the CPU: the loss and every gradient, from the same initial weights, with the same routes.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <iostream>

#include "device/gpus.h"
#include "kernels/elementwise/elementwise.h"
#include "model/model_test_support.h"
#include "tensor/host_copy.h"

namespace longhaul {
namespace {

using namespace testing;

// Sizes that a GPU takes: multiples of 8.
ModelOptions small_k3() {
  ModelOptions o;
  o.vocab_size = 160;
  o.hidden_size = 64;
  o.num_hidden_layers = 6;
  o.num_attention_heads = 2;
  o.q_lora_rank = 32;
  o.kv_lora_rank = 32;
  o.qk_nope_head_dim = 32;
  o.qk_rope_head_dim = 16;
  o.v_head_dim = 32;
  o.linear_attn_config = {.num_heads = 2, .head_dim = 32, .kda_layers = {1, 2, 4, 5}, .full_attn_layers = {3, 6}};
  o.attn_res_block_size = 2;
  o.intermediate_size = 96;
  o.num_experts = 8;
  o.num_experts_per_token = 2;
  o.moe_intermediate_size = 40;
  o.routed_expert_hidden_size = 32;
  return o;
}

struct Result {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
  std::vector<Tensor> routes;  // i32 [tokens, top_k] on the host, of each layer; absent for dense ones
};

using Weights = std::map<std::string, std::vector<double>>;

// Forward and backward on `device`, from the initial weights or the given ones, with the given routes where there are some.
Result run_on(Device device, DType dtype, const ModelOptions& options, const TinyBatch& batch, const Weights& weights,
              const std::vector<Tensor>& routes) {
  const Alone alone;
  ExecContext ctx = device.kind == DeviceKind::Cuda ? ExecContext::cuda(device) : ExecContext::cpu();
  const StageModel model(options, whole(options), dtype, alone.group);
  Parameters parameters(model, ctx);
  parameters.initialise(ctx, 3);
  for (const auto& [name, values] : weights) {
    const Parameter& p = *parameters.find(name);
    copy_between(Tensor::from(std::vector<float>(values.begin(), values.end()), p.spec.shape), p.value);
  }
  parameters.publish(ctx);

  std::vector<Tensor> owners;
  const auto placed = [&](const Tensor& host) { return owners.emplace_back(copy_to(host, device)).view(); };
  std::vector<RouterState> routers(model.layers().size());
  for (size_t i = 0; i < routers.size(); ++i) {
    if (!model.layers()[i].is_dense) {
      routers[i].bias = placed(Tensor::zeros(accurate_type(dtype), {options.num_experts}));
      if (!routes.empty()) {
        routers[i].forced_experts = placed(routes[i]);
      }
    }
  }
  const MicroBatch on_device{.ids = placed(batch.ids), .targets = placed(batch.targets), .cu_seqlens = placed(batch.cu_seqlens)};
  const TensorView loss_sum = placed(Tensor::zeros(DType::F64, {1}));
  Arena keep(device, "keep", 0, Arena::Growth::Chunked);
  const double scale = 1.0 / static_cast<double>(batch.valid_targets);
  const StageModel::Saved saved = model.forward(ctx, keep, parameters.values(), routers, on_device, {}, {.sum = loss_sum, .grad_scale = scale},
                                                StageModel::Purpose::Train, &parameters.gradients());
  (void)model.backward(ctx, keep, parameters.values(), saved, {}, parameters.gradients());

  Result result{.loss = HostCopy(loss_sum).view().data<double>()[0] * scale, .gradients = {}, .routes = {}};
  for (const Parameter& p : parameters.all()) {
    result.gradients[p.name] = to_doubles(HostCopy(p.gradient).view());
  }
  for (size_t i = 0; i < routers.size(); ++i) {
    result.routes.push_back(model.layers()[i].is_dense ? Tensor{} : copy_to(saved.layers[i].moe.experts, Device{}));
  }
  return result;
}

struct Likeness {
  double relative_l2 = 0;
  double cosine = 1;
};

Likeness likeness(const std::vector<double>& a, const std::vector<double>& b) {
  double aa = 0, bb = 0, ab = 0, dd = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    aa += a[i] * a[i];
    bb += b[i] * b[i];
    ab += a[i] * b[i];
    dd += (a[i] - b[i]) * (a[i] - b[i]);
  }
  if (bb == 0) {
    return {.relative_l2 = aa == 0 ? 0.0 : INFINITY, .cosine = aa == 0 ? 1.0 : 0.0};
  }
  return {.relative_l2 = std::sqrt(dd / bb), .cosine = ab / std::sqrt(aa * bb)};
}

// Documents in which a token mostly follows from the one before, so that there is something to learn.
TinyBatch learnable_batch(const std::vector<int64_t>& lengths, int64_t vocab) {
  const RandomStream stream{.seed = 1, .stream = stream_id("learnable batch")};
  std::vector<int32_t> ids, targets;
  for (const int64_t length : lengths) {
    for (int64_t t = 0; t < length; ++t) {
      const auto noise = static_cast<int64_t>(static_cast<double>(stream.uniform(ids.size())) * 4);
      const int64_t next = t == 0 ? noise * 31 : ids.back() * 5 + 1 + noise;
      if (t > 0) {
        targets.back() = narrow<int32_t>(next % vocab);
      }
      ids.push_back(narrow<int32_t>(next % vocab));
      targets.push_back(kIgnoredTarget);
    }
  }
  return batch_from(ids, targets, lengths);
}

// Weights after some steps on the CPU by the sign of the gradient, rounded to bf16.
Weights trained(const ModelOptions& options, const TinyBatch& batch, int steps) {
  Weights weights;
  {
    const Alone alone;
    ExecContext ctx = ExecContext::cpu();
    const StageModel model(options, whole(options), DType::F32, alone.group);
    Parameters parameters(model, ctx);
    parameters.initialise(ctx, 3);
    for (const Parameter& p : parameters.all()) {
      weights[p.name] = to_doubles(p.value);
    }
  }
  for (int step = 0; step < steps; ++step) {
    const Result now = run_on(Device{}, DType::F32, options, batch, weights, {});
    for (auto& [name, values] : weights) {
      const std::vector<double>& gradient = now.gradients.at(name);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] -= gradient[i] == 0 ? 0 : std::copysign(2e-3, gradient[i]);
      }
    }
  }
  for (auto& [name, values] : weights) {
    for (double& value : values) {
      value = static_cast<float>(BFloat16(static_cast<float>(value)));
    }
  }
  return weights;
}

// Compares every gradient, and prints the least alike.
void check_gradients(const Result& got, const Result& wanted, DType dtype, double lowest_cosine) {
  std::string worst;
  Likeness lowest{.relative_l2 = 0, .cosine = 1};
  for (const auto& [name, gradient] : wanted.gradients) {
    INFO(name);
    const Likeness found = likeness(got.gradients.at(name), gradient);
    if (dtype == DType::F32) {
      CHECK(found.relative_l2 < 1e-3);
    } else {
      CHECK(found.cosine > lowest_cosine);
    }
    if (found.cosine <= lowest.cosine) {
      lowest = found;
      worst = name;
    }
  }
  std::cout << "parity model.gradients " << worst << " cosine " << lowest.cosine << ' ' << to_string(dtype) << ' ' << lowest.relative_l2 << '\n';
}

TEST_CASE("a model on the GPU has the loss and the gradients of the CPU", "[model][cuda]") {
  if (find_gpus().empty()) {
    SKIP("no GPU");
  }
  const std::vector<int64_t> lengths = {70, 1, 129, 33, 300};
  for (const ModelOptions& options : {small_k3(), kimi_linear_of(small_k3())}) {
    const TinyBatch random = batch_of(lengths, options.vocab_size);
    const TinyBatch learnable = learnable_batch(lengths, options.vocab_size);
    for (const bool at_start : {true, false}) {
      const TinyBatch& batch = at_start ? random : learnable;
      const Weights weights = at_start ? Weights{} : trained(options, batch, 40);
      const Result cpu = run_on(Device{}, DType::F32, options, batch, weights, {});
      for (const DType dtype : {DType::F32, DType::BF16}) {
        INFO("in " << to_string(dtype) << (options.attn_res_block_size ? ", K3" : ", Kimi Linear") << (at_start ? ", at the start" : ", trained"));
        const Result gpu = run_on({.kind = DeviceKind::Cuda, .index = 0}, dtype, options, batch, weights, cpu.routes);
        CHECK(std::abs(gpu.loss - cpu.loss) < (dtype == DType::F32 ? 1e-5 : 3e-3) * cpu.loss);
        // At the start, with random tokens and weights that the GPU rounds, sums over tokens nearly cancel, which magnifies rounding.
        // Measured on an H200: at the start above 0.999 for all but two of 290 tensors (0.9955 for a decay's A_log, two numbers);
        // trained, from equal weights, above 0.9996 for all.
        check_gradients(gpu, cpu, dtype, at_start ? 0.99 : 0.999);
      }
    }
  }
}

}  // namespace
}  // namespace longhaul
