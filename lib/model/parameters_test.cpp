// Initial values depend on seed, name and place in the whole tensor, not on the layout; their distributions are as stated.
#include "model/parameters.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "model/model_test_support.h"

namespace longhaul {
namespace {

using namespace testing;
using Catch::Approx;

constexpr uint64_t kSeed = 7;

// Values of all parameters of a stage on one rank of an expert group.
std::map<std::string, std::vector<double>> initial_values(const ModelOptions& options, const StageRange& range, const Group& group,
                                                          uint64_t seed = kSeed) {
  const StageModel model(options, range, DType::F32, group);
  ExecContext ctx = ExecContext::cpu();
  Parameters parameters(model, ctx);
  parameters.initialise(ctx, seed);
  std::map<std::string, std::vector<double>> values;
  for (const Parameter& p : parameters.all()) {
    CHECK(values.emplace(p.name, to_doubles(p.value)).second);
  }
  return values;
}

TEST_CASE("stages of a pipeline start as the whole model does", "[model]") {
  const Alone alone;
  const ModelOptions options = tiny_k3();
  const auto all = initial_values(options, whole(options), alone.group);
  size_t seen = 0;
  for (const StageRange& range : cut_stages_at(options, legal_cuts(options))) {
    for (const auto& [name, values] : initial_values(options, range, alone.group)) {
      INFO(name);
      CHECK(values == all.at(name));
      ++seen;
    }
  }
  CHECK(seen == all.size());
}

TEST_CASE("expert ranks start with their slices of the whole model", "[model]") {
  const Alone alone;
  const ModelOptions options = tiny_k3();
  const auto all = initial_values(options, whole(options), alone.group);
  for (const int size : {2, 4}) {
    std::map<std::string, std::vector<double>> joined;
    for (int rank = 0; rank < size; ++rank) {
      // Only the place in the group matters here; nothing is communicated.
      const Group group{"expert", rank, size, alone.group.host, alone.group.device};
      for (const auto& [name, values] : initial_values(options, whole(options), group)) {
        if (name.find(".experts.") == std::string::npos) {
          CHECK(values == all.at(name));
        } else {
          joined[name].insert(joined[name].end(), values.begin(), values.end());
        }
      }
    }
    CHECK(joined.size() == 3 * 4);  // w1, w2, w3 of four mixture layers
    for (const auto& [name, values] : joined) {
      INFO(name << " over " << size << " ranks");
      CHECK(values == all.at(name));
    }
  }
}

TEST_CASE("another seed gives another model, and no two parameters are alike", "[model]") {
  const Alone alone;
  const ModelOptions options = tiny_k3();
  const auto first = initial_values(options, whole(options), alone.group);
  const auto second = initial_values(options, whole(options), alone.group, kSeed + 1);
  std::set<std::vector<double>> random;
  for (const auto& [name, values] : first) {
    const bool is_constant = std::ranges::all_of(values, [&](double x) { return x == values[0]; });
    if (!is_constant) {
      INFO(name);
      CHECK(values != second.at(name));
      CHECK(random.insert(values).second);
    }
  }
  CHECK(random.size() > 50);
}

struct Moments {
  double mean = 0, deviation = 0, min = 0, max = 0;
};
Moments moments_of(const std::vector<double>& x) {
  const double n = static_cast<double>(x.size());
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double square = std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / n;
  const auto [min, max] = std::ranges::minmax(x);
  return {.mean = mean, .deviation = std::sqrt(square - mean * mean), .min = min, .max = max};
}

Moments initial_moments(const ParameterSpec& spec) {
  const Tensor value(DType::F64, spec.shape);
  ExecContext ctx = ExecContext::cpu();
  initialise_parameter(ctx, spec, "some parameter", kSeed, value);
  return moments_of(to_doubles(value));
}

TEST_CASE("each kind of parameter starts with its distribution", "[model]") {
  const Shape many{100, 200};
  const Moments normal = initial_moments({.dtype = DType::F64, .shape = many, .init = InitKind::Normal, .init_scale = 0.02});
  CHECK(std::abs(normal.mean) < 5 * 0.02 / std::sqrt(20000.0));
  CHECK(normal.deviation == Approx(0.02).epsilon(0.03));
  const Moments a_log = initial_moments({.dtype = DType::F64, .shape = many, .init = InitKind::LogUniform16});
  CHECK(a_log.min >= 0);
  CHECK(a_log.max <= std::log(16.0));
  CHECK(a_log.max > std::log(15.9));
  CHECK(a_log.mean == Approx(16.0 / 15 * std::log(16.0) - 1).epsilon(0.01));  // mean of the log of a uniform on [1, 16]

  // softplus(dt_bias) is log-uniform on [1e-3, 1e-1].
  const Tensor dt_bias(DType::F64, many);
  ExecContext ctx = ExecContext::cpu();
  initialise_parameter(ctx, {.dtype = DType::F64, .shape = many, .init = InitKind::DtBias}, "dt", kSeed, dt_bias);
  std::vector<double> log_dt = to_doubles(dt_bias);
  std::ranges::transform(log_dt, log_dt.begin(), [](double x) { return std::log(std::log1p(std::exp(x))); });
  const Moments dt = moments_of(log_dt);
  CHECK(dt.min >= std::log(1e-3) - 1e-9);
  CHECK(dt.max <= std::log(1e-1) + 1e-9);
  CHECK(dt.mean == Approx(std::log(1e-2)).epsilon(0.01));
  CHECK(dt.deviation == Approx(std::log(100.0) / std::sqrt(12.0)).epsilon(0.02));
}

TEST_CASE("residual queries start at zero and norms at one", "[model]") {
  const Alone alone;
  const ModelOptions options = tiny_k3();
  for (const auto& [name, values] : initial_values(options, whole(options), alone.group)) {
    INFO(name);
    if (name.ends_with("res_proj.weight")) {
      CHECK(values == std::vector<double>(values.size(), 0));
    } else if (name.find("norm") != std::string::npos) {
      CHECK(values == std::vector<double>(values.size(), 1));
    }
  }
}

TEST_CASE("all gradients lie in two blocks, and start at zero", "[model]") {
  const Alone alone;
  const ModelOptions options = tiny_k3();
  const StageModel model(options, whole(options), DType::F32, alone.group);
  ExecContext ctx = ExecContext::cpu();
  Parameters parameters(model, ctx);
  int64_t dense = 0, experts = 0;
  for (const Parameter& p : parameters.all()) {
    INFO(p.name);
    const TensorView block = p.spec.is_expert() ? parameters.expert_gradients() : parameters.dense_gradients();
    const auto* begin = block.data<double>();
    CHECK(p.gradient.data<double>() >= begin);
    CHECK(p.gradient.data<double>() + p.gradient.numel() <= begin + block.numel());
    CHECK(p.gradient.shape() == p.value.shape());
    (p.spec.is_expert() ? experts : dense) += p.value.numel();
    CHECK(parameters.find(p.name) == &p);
    std::fill_n(p.gradient.data<double>(), p.gradient.numel(), 1.0);
  }
  // Each element was written once: views do not overlap, and the gaps between them are zero.
  const auto sum = [](const TensorView& block) {
    const std::vector<double> all = to_doubles(block);
    return std::accumulate(all.begin(), all.end(), 0.0);
  };
  CHECK(sum(parameters.dense_gradients()) == static_cast<double>(dense));
  CHECK(sum(parameters.expert_gradients()) == static_cast<double>(experts));
  parameters.zero_gradients(ctx);
  CHECK(sum(parameters.dense_gradients()) == 0);
  CHECK(parameters.find("model.layers.9.input_layernorm.weight") == nullptr);
}

}  // namespace
}  // namespace longhaul
