// The mixture layer on one rank, in the released and the mixed forms. Golden values are in tests/golden; several ranks in
// moe_ranks_test.cpp.
#include "layers/moe/moe_layer.h"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "layers/moe/moe_test_support.h"

namespace longhaul {
namespace {

using namespace testing;

std::vector<MoeLayer> all_forms(DType dtype) {
  MoeLayer without_norm = latent_moe(dtype);
  without_norm.options.latent_norm = false;
  MoeLayer without_shared = plain_moe(dtype);
  without_shared.options.shared_intermediate = 0;
  MoeLayer all_chosen = latent_moe(dtype);
  all_chosen.options.top_k = all_chosen.options.num_experts;
  all_chosen.options.shared_intermediate = 0;
  MoeLayer one_chosen = plain_moe(dtype);
  one_chosen.options.top_k = 1;
  return {latent_moe(dtype), plain_moe(dtype), without_norm, without_shared, all_chosen, one_chosen};
}

std::string form(const MoeLayer& layer) {
  return fmt::format("latent {}, norm {}, shared {}, top {}", layer.options.latent, layer.options.latent_norm,
                     layer.options.shared_intermediate, layer.options.top_k);
}

TEST_CASE("MoeLayer has the gradients of finite differences", "[layers]") {
  const Alone alone;
  for (const MoeLayer& layer : all_forms(DType::F64)) {
    INFO(form(layer));
    const Tensor bias = bias_of(layer, "bias", 0.2);
    check_layer_gradients(LayerProblem<OnExperts>(OnExperts{layer, alone.group, router_with(bias)}, 9), {.max_elements = 16});
  }
}

TEST_CASE("MoeLayer plans the memory that it uses, and repeats its bits", "[layers]") {
  const Alone alone;
  for (const DType dtype : {DType::F32, DType::F64}) {
    for (const MoeLayer& layer : all_forms(dtype)) {
      INFO(form(layer));
      const Tensor bias = bias_of(layer, "bias", 0.2);
      check_layer_memory(LayerProblem<OnExperts>(OnExperts{layer, alone.group, router_with(bias)}, 21));
    }
  }
}

TEST_CASE("MoeLayer without tokens has no gradient", "[layers]") {
  const Alone alone;
  for (const MoeLayer& layer : all_forms(DType::F64)) {
    const Tensor bias = bias_of(layer, "bias", 0.2);
    check_layer_without_tokens(LayerProblem<OnExperts>(OnExperts{layer, alone.group, router_with(bias)}, 0));
  }
}

// y = W2 f(W1 x, W3 x) for one row, by the definition of SiTU-GLU.
std::vector<double> feed_forward(const std::vector<double>& x, const TensorView& w1, const TensorView& w3, const TensorView& w2,
                                 const Activation& a) {
  const auto product = [](const TensorView& w, const std::vector<double>& v) {
    std::vector<double> out(static_cast<size_t>(w.size(0)));
    for (int64_t i = 0; i < w.size(0); ++i) {
      out[static_cast<size_t>(i)] = std::inner_product(v.begin(), v.end(), w[i].data<double>(), 0.0);
    }
    return out;
  };
  std::vector<double> gate = product(w1, x);
  const std::vector<double> up = product(w3, x);
  for (size_t i = 0; i < gate.size(); ++i) {
    gate[i] = a.beta_gate * std::tanh(gate[i] / a.beta_gate) / (1 + std::exp(-gate[i])) * a.beta_up * std::tanh(up[i] / a.beta_up);
  }
  return product(w2, gate);
}

TEST_CASE("the latent norm stands between the complete combine and the up-projection", "[layers]") {
  // With identity projections and a norm of ones, y = rms(sum of weighted experts) + shared experts.
  const Alone alone;
  MoeLayer layer = latent_moe(DType::F64);
  layer.options.latent = layer.options.hidden;
  const Tensor bias = bias_of(layer, "bias", 0.2);
  LayerProblem<OnExperts> p(OnExperts{layer, alone.group, router_with(bias)}, 7);
  const int64_t hidden = layer.options.hidden;
  for (const char* name : {"routed_expert_down_proj.weight", "routed_expert_up_proj.weight"}) {
    const auto values = p.weights.tensors.at(name).values<double>();
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = i % static_cast<size_t>(hidden + 1) == 0 ? 1 : 0;
    }
  }
  std::ranges::fill(p.weights.tensors.at("routed_expert_norm.weight").values<double>(), 1.0);
  ExecContext ctx = ExecContext::cpu();
  Arena keep(Device{}, "keep", 0, Arena::Growth::Chunked);
  const Tensor y = nan_tensor(DType::F64, p.x.view().shape());
  const MoeLayer::Saved saved = p.subject.forward(ctx, keep, p.weights.views, p.x, y);
  const auto& w = p.weights.views;
  for (int64_t t = 0; t < 7; ++t) {
    const std::vector<double> x = to_doubles(p.x.view()[t]);
    std::vector<double> sum(x.size());
    for (int64_t c = 0; c < layer.options.top_k; ++c) {
      const int32_t expert = saved.experts[t].data<int32_t>()[c];
      const std::vector<double> out = feed_forward(x, w.w1[expert], w.w3[expert], w.w2[expert], layer.options.activation);
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += saved.weights[t].data<double>()[c] * out[i];
      }
    }
    const double mean_square = std::inner_product(sum.begin(), sum.end(), sum.begin(), 0.0) / static_cast<double>(hidden);
    const std::vector<double> shared = feed_forward(x, w.shared.gate_proj, w.shared.up_proj, w.shared.down_proj, layer.options.activation);
    for (size_t i = 0; i < sum.size(); ++i) {
      const double wanted = sum[i] / std::sqrt(mean_square + layer.options.norm_eps) + shared[i];
      CHECK(std::abs(y.view()[t].data<double>()[i] - wanted) < 1e-13);
    }
  }
}

TEST_CASE("a larger bias attracts tokens and leaves the weights of a choice alone", "[layers]") {
  const Alone alone;
  const MoeLayer layer = plain_moe(DType::F64);
  const int64_t experts = layer.options.num_experts, tokens = 200;
  Tensor bias = Tensor::zeros(DType::F64, {experts});
  const LayerProblem<OnExperts> p(OnExperts{layer, alone.group, router_with(bias)}, tokens);
  ExecContext ctx = ExecContext::cpu();
  Arena keep(Device{}, "keep", 0, Arena::Growth::Chunked);
  const Tensor y(DType::F64, p.x.view().shape());
  const auto loads = [&](const RouterState& router) {
    const MoeLayer::Saved saved = layer.forward(ctx, keep, alone.group, p.weights.views, router, p.x, y);
    std::vector<int64_t> load(static_cast<size_t>(experts));
    for (int64_t slot = 0; slot < saved.experts.numel(); ++slot) {
      ++load[static_cast<size_t>(saved.experts.data<int32_t>()[slot])];
    }
    return std::pair(load, saved);
  };
  const auto [level, unbiased] = loads(router_with(bias));
  bias.values<double>()[4] = 0.4;
  bias.values<double>()[5] = -0.4;
  const auto [steered, biased] = loads(router_with(bias));
  CHECK(steered[4] > level[4]);
  CHECK(steered[5] < level[5]);
  CHECK(std::accumulate(steered.begin(), steered.end(), int64_t{0}) == tokens * layer.options.top_k);

  // The same choice, forced and without the bias, gives the same weights and output.
  const std::vector<double> chosen = to_doubles(biased.experts);
  const Tensor forced = Tensor::from(std::vector<int32_t>(chosen.begin(), chosen.end()), biased.experts.shape());
  const std::vector<double> y_biased = to_doubles(y);
  const Tensor zero = Tensor::zeros(DType::F64, {experts});
  const auto [same, forced_saved] = loads({.bias = zero, .forced_experts = forced, .counts = {}, .load = {}});
  CHECK(same == steered);
  CHECK(bitwise_equal(forced_saved.weights, biased.weights));
  CHECK(to_doubles(y) == y_biased);
}

TEST_CASE("statistics are counted when they are asked for, once", "[layers]") {
  const Alone alone;
  const MoeLayer layer = latent_moe(DType::F32);
  const int64_t experts = layer.options.num_experts, tokens = 40, bins = 16;
  const Tensor bias = bias_of(layer, "bias", 0.1);
  const Tensor counts = Tensor::zeros(DType::I64, {experts, bins});
  const Tensor load = Tensor::zeros(DType::I64, {experts});
  RouterState router = router_with(bias);
  router.counts = counts;
  router.load = load;
  router.low = -1.5;
  router.high = 1.5;
  const LayerProblem<OnExperts> counted(OnExperts{layer, alone.group, router}, tokens);
  const LayerResult with = run_layer(counted);
  check_equal_bits(with, run_layer(LayerProblem<OnExperts>(OnExperts{layer, alone.group, router_with(bias)}, tokens)));
  const auto sum = [](const Tensor& t) { return std::accumulate(t.values<int64_t>().begin(), t.values<int64_t>().end(), int64_t{0}); };
  CHECK(sum(counts) == tokens * experts);
  CHECK(sum(load) == tokens * layer.options.top_k);
  for (int64_t e = 0; e < experts; ++e) {
    CHECK(std::accumulate(counts.view()[e].data<int64_t>(), counts.view()[e].data<int64_t>() + bins, int64_t{0}) == tokens);
  }
  (void)run_layer(counted);
  CHECK(sum(load) == 2 * tokens * layer.options.top_k);  // accumulated
}

TEST_CASE("experts that no token chose have exactly no gradient", "[layers]") {
  const Alone alone;
  for (MoeLayer layer : {latent_moe(DType::F32), plain_moe(DType::F64)}) {
    layer.options.top_k = 2;
    Tensor bias = Tensor::zeros(layer.options.dtype, {layer.options.num_experts});
    set_biases(bias, {0, 0, 0, 0, -9, -9, -9, -9});
    const LayerResult result = run_layer(LayerProblem<OnExperts>(OnExperts{layer, alone.group, router_with(bias)}, 30));
    for (const char* name : {"experts.w1.weight", "experts.w2.weight", "experts.w3.weight"}) {
      const TensorView idle = result.gradients.at(name).view().slice(0, 4, 8);
      CHECK(to_doubles(idle) == std::vector<double>(static_cast<size_t>(idle.numel())));
      CHECK(to_doubles(result.gradients.at(name).view()[0]) != std::vector<double>(static_cast<size_t>(idle.numel() / 4)));
    }
  }
}

}  // namespace
}  // namespace longhaul
