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

// Forward and backward on `device`, with the given routes where there are some.
Result run_on(Device device, DType dtype, const ModelOptions& options, const TinyBatch& batch, const std::vector<Tensor>& routes) {
  const Alone alone;
  ExecContext ctx = device.kind == DeviceKind::Cuda ? ExecContext::cuda(device) : ExecContext::cpu();
  const StageModel model(options, whole(options), dtype, alone.group);
  Parameters parameters(model, ctx);
  parameters.initialise(ctx, 3);

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

TEST_CASE("a model on the GPU has the loss and the gradients of the CPU", "[model][cuda]") {
  if (find_gpus().empty()) {
    SKIP("no GPU");
  }
  for (const ModelOptions& options : {small_k3(), kimi_linear_of(small_k3())}) {
    const TinyBatch batch = batch_of({70, 1, 129, 33, 300}, options.vocab_size);
    const Result cpu = run_on(Device{}, DType::F32, options, batch, {});
    for (const DType dtype : {DType::F32, DType::BF16}) {
      const Result gpu = run_on({.kind = DeviceKind::Cuda, .index = 0}, dtype, options, batch, cpu.routes);
      INFO("in " << to_string(dtype) << (options.attn_res_block_size ? ", K3" : ", Kimi Linear"));
      CHECK(std::abs(gpu.loss - cpu.loss) < (dtype == DType::F32 ? 1e-5 : 3e-3) * cpu.loss);
      std::string worst;
      Likeness lowest{.relative_l2 = 0, .cosine = 1};
      for (const auto& [name, gradient] : cpu.gradients) {
        INFO(name);
        const Likeness found = likeness(gpu.gradients.at(name), gradient);
        if (dtype == DType::F32) {
          CHECK(found.relative_l2 < 1e-3);
        } else {
          // Sums over random tokens nearly cancel at the start of training, which magnifies rounding. Measured on an H200: above 0.999
          // for all but two of 290 tensors; 0.9955 for a decay's A_log, two numbers.
          CHECK(found.cosine > 0.99);
        }
        if (found.cosine <= lowest.cosine) {
          lowest = found;
          worst = name;
        }
      }
      std::cout << "parity model.gradients " << worst << " cosine " << lowest.cosine << ' ' << to_string(dtype) << ' ' << lowest.relative_l2
                << '\n';
    }
  }
}

}  // namespace
}  // namespace longhaul
