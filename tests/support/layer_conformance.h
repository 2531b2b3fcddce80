// What every layer promises, checked on any layer (lib/layers/README.md):
//   - gradients of the input and of all weights agree with finite differences (double);
//   - weight gradients are added to, the input's gradient is overwritten, every output is written before it is read
//     (memory starts as NaN);
//   - planning touches no data and finds exactly the memory that a step uses;
//   - equal runs give equal bits.
// A subject wraps a layer with what its forward and backward need beside weights and data:
//   OnDocuments<KdaLayer>, OnDocuments<MlaLayer>, OnTokens (MlpLayer), OnExperts (MoeLayer).
#pragma once

#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/cast.h"
#include "layers/kda/kda_layer.h"
#include "layers/mla/mla_layer.h"
#include "layers/mlp/mlp_layer.h"
#include "layers/moe/moe_layer.h"
#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"

namespace longhaul::testing {

// --- subjects ---
template <class L>
struct OnDocuments {
  using Layer = L;
  L layer;
  Packing packing;

  [[nodiscard]] auto weights() const { return layer.weights(); }
  template <class W>
  [[nodiscard]] auto forward(ExecContext& ctx, Arena& keep, const W& w, TensorView x, TensorView y) const {
    return layer.forward(ctx, keep, w, packing, x, y);
  }
  template <class W, class S>
  void backward(ExecContext& ctx, const W& w, TensorView x, const S& saved, TensorView dy, TensorView dx, const W& dw) const {
    layer.backward(ctx, w, packing, x, saved, dy, dx, dw);
  }
};

struct OnTokens {
  using Layer = MlpLayer;
  MlpLayer layer;

  [[nodiscard]] auto weights() const { return layer.weights(); }
  template <class W>
  [[nodiscard]] auto forward(ExecContext& ctx, Arena& keep, const W& w, TensorView x, TensorView y) const {
    return layer.forward(ctx, keep, w, x, y);
  }
  template <class W, class S>
  void backward(ExecContext& ctx, const W& w, TensorView x, const S& saved, TensorView dy, TensorView dx, const W& dw) const {
    layer.backward(ctx, w, x, saved, dy, dx, dw);
  }
};

struct OnExperts {
  using Layer = MoeLayer;
  MoeLayer layer;
  const Group& group;
  RouterState router;

  [[nodiscard]] auto weights() const { return layer.weights(group); }
  template <class W>
  [[nodiscard]] auto forward(ExecContext& ctx, Arena& keep, const W& w, TensorView x, TensorView y) const {
    return layer.forward(ctx, keep, group, w, router, x, y);
  }
  template <class W, class S>
  void backward(ExecContext& ctx, const W& w, TensorView x, const S& saved, TensorView dy, TensorView dx, const W& dw) const {
    layer.backward(ctx, group, w, x, saved, dy, dx, dw);
  }
};

// --- weights ---
// Random values that exercise every gradient: matrices keep the size of their input, nothing is zero or one.
[[nodiscard]] inline Tensor random_weight(const ParameterSpec& spec, const std::string& name) {
  switch (spec.init) {
    case InitKind::Ones: return random_tensor(spec.dtype, spec.shape, name, 0.2, 1);
    case InitKind::Zeros: return random_tensor(spec.dtype, spec.shape, name, 0.3);
    case InitKind::DtBias: return random_tensor(spec.dtype, spec.shape, name, 1, -1);
    case InitKind::LogUniform16: return random_tensor(spec.dtype, spec.shape, name, 0.5, 0.5);
    case InitKind::Normal: break;
  }
  return random_tensor(spec.dtype, spec.shape, name, 1 / std::sqrt(static_cast<double>(spec.shape[-1])));
}

// Tensors for all parameters of a layer, by name, and the layer's view of them.
template <class Layer>
struct WeightSet {
  std::map<std::string, Tensor> tensors;
  typename Layer::template Weights<TensorView> views;

  template <class Make>
  WeightSet(const typename Layer::Options& options, typename Layer::template Weights<ParameterSpec> specs, Make&& make) {
    Layer::for_each(options, specs,
                    [&](const char* name, const ParameterSpec& spec) { tensors.emplace(name, make(spec, std::string(name))); });
    Layer::for_each(options, views, [&](const char* name, TensorView& view) { view = tensors.at(name); });
  }
};
// Gradients of the CPU backend, all of one value.
template <class Layer>
[[nodiscard]] WeightSet<Layer> gradient_set(const typename Layer::Options& options,
                                            const typename Layer::template Weights<ParameterSpec>& specs, double value) {
  return WeightSet<Layer>(options, specs, [&](const ParameterSpec& spec, const std::string&) {
    return Tensor::from(std::vector<double>(static_cast<size_t>(spec.shape.numel()), value), spec.shape);
  });
}

// --- one run ---
template <class Subject>
struct LayerProblem {
  using Layer = typename Subject::Layer;
  Subject subject;
  WeightSet<Layer> weights;
  Tensor x, dy;  // [tokens, hidden]

  LayerProblem(Subject s, int64_t tokens)
      : subject(std::move(s)),
        weights(subject.layer.options, subject.weights(), random_weight),
        x(random_tensor(dtype(), {tokens, hidden()}, "layer/x")),
        dy(random_tensor(dtype(), {tokens, hidden()}, "layer/dy")) {}
  [[nodiscard]] DType dtype() const { return subject.layer.options.dtype; }
  [[nodiscard]] int64_t hidden() const { return subject.layer.options.hidden; }
};

struct LayerResult {
  Tensor y, dx;                             // [tokens, hidden]
  std::map<std::string, Tensor> gradients;  // f64, of the weights
  int64_t keep_bytes = 0, scratch_bytes = 0;
};

[[nodiscard]] inline Tensor nan_tensor(DType dtype, const Shape& shape) {
  Tensor tensor(dtype, shape);
  if (tensor.view().bytes() > 0) {
    std::memset(tensor.view().raw(), 0xff, static_cast<size_t>(tensor.view().bytes()));  // NaN in every float type
  }
  return tensor;
}

// An arena of exactly this size, full of NaN.
[[nodiscard]] inline Arena nan_arena(const char* name, int64_t bytes) {
  Arena arena(Device{}, name, bytes);
  const ArenaScope scope(arena);
  std::byte* memory = arena.take_bytes("poison", bytes);
  std::memset(memory, 0xff, static_cast<size_t>(bytes));
  return arena;
}

template <class Subject>
[[nodiscard]] LayerResult run_layer(const LayerProblem<Subject>& p, ExecContext& ctx, Arena& keep, double gradients_before = 0) {
  const Shape wide = p.x.view().shape();
  LayerResult result{.y = nan_tensor(p.dtype(), wide), .dx = nan_tensor(p.dtype(), wide), .gradients = {}};
  auto gradients = gradient_set<typename Subject::Layer>(p.subject.layer.options, p.subject.weights(), gradients_before);
  const auto saved = p.subject.forward(ctx, keep, p.weights.views, p.x, result.y);
  p.subject.backward(ctx, p.weights.views, p.x, saved, p.dy, result.dx, gradients.views);
  result.gradients = std::move(gradients.tensors);
  result.keep_bytes = keep.high_water_bytes();
  result.scratch_bytes = ctx.scratch().high_water_bytes();
  return result;
}
template <class Subject>
[[nodiscard]] LayerResult run_layer(const LayerProblem<Subject>& p, double gradients_before = 0) {
  ExecContext ctx = ExecContext::cpu();
  Arena keep(Device{}, "keep", 0, Arena::Growth::Chunked);
  return run_layer(p, ctx, keep, gradients_before);
}

// The same forward and backward with shapes only.
struct LayerBytes {
  int64_t keep = 0, scratch = 0;
};
template <class Subject>
[[nodiscard]] LayerBytes plan_layer(const LayerProblem<Subject>& p) {
  using Layer = typename Subject::Layer;
  typename Layer::template Weights<TensorView> w, dw;
  auto specs = p.subject.weights();
  std::map<std::string, ParameterSpec> by_name;
  Layer::for_each(p.subject.layer.options, specs, [&](const char* name, const ParameterSpec& spec) { by_name.emplace(name, spec); });
  Layer::for_each(p.subject.layer.options, w, [&](const char* name, TensorView& v) {
    v = {nullptr, by_name.at(name).dtype, by_name.at(name).shape};
  });
  Layer::for_each(p.subject.layer.options, dw, [&](const char* name, TensorView& v) { v = {nullptr, DType::F64, by_name.at(name).shape}; });
  const TensorView data(nullptr, p.dtype(), p.x.view().shape());
  ExecContext ctx = ExecContext::plan(Device{});
  Arena keep = Arena::measuring(Device{}, "keep");
  const auto saved = p.subject.forward(ctx, keep, w, data, data);
  p.subject.backward(ctx, w, data, saved, data, data, dw);
  return {.keep = keep.high_water_bytes(), .scratch = ctx.scratch().high_water_bytes()};
}

inline void check_equal_bits(const LayerResult& a, const LayerResult& b) {
  CHECK(bitwise_equal(a.y, b.y));
  CHECK(bitwise_equal(a.dx, b.dx));
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (const auto& [name, gradient] : a.gradients) {
    INFO(name);
    CHECK(bitwise_equal(gradient, b.gradients.at(name)));
  }
}

// --- the checks ---
// Memory and repeatability, in any type. Plans are exact on one rank; routing over several makes rows ragged.
template <class Subject>
void check_layer_memory(const LayerProblem<Subject>& p) {
  const LayerBytes planned = plan_layer(p);
  const LayerResult first = run_layer(p);
  CHECK(first.keep_bytes == planned.keep);
  CHECK(first.scratch_bytes == planned.scratch);

  ExecContext ctx(Device{}, ExecContext::Mode::Execute, nan_arena("scratch", planned.scratch));
  Arena keep = nan_arena("keep", planned.keep);
  check_equal_bits(first, run_layer(p, ctx, keep));

  for (const auto& [name, gradient] : run_layer(p, 0.5).gradients) {
    INFO(name);
    std::vector<double> added = to_doubles(gradient);
    for (double& value : added) {
      value -= 0.5;
    }
    CHECK(difference(Tensor::from(added, gradient.view().shape()), first.gradients.at(name)).max_abs <= 1e-13);
  }
}

// Finite differences of <dy, y>, in double.
template <class Subject>
void check_layer_gradients(const LayerProblem<Subject>& p, const GradientCheckOptions& options = {}) {
  REQUIRE(p.dtype() == DType::F64);
  const LayerResult analytic = run_layer(p);
  ExecContext ctx = ExecContext::cpu();
  Arena keep(Device{}, "keep", 0, Arena::Growth::Chunked);
  const Tensor y(DType::F64, p.x.view().shape());
  const auto loss = [&] {
    const ArenaScope scope(keep);
    (void)p.subject.forward(ctx, keep, p.weights.views, p.x, y);
    return dot(p.dy, y);
  };
  constexpr double kBar = 1e-6;  // central differences reach 1e-9 of the loss; gradients near zero are measured against 1e-3
  CHECK(gradient_error(p.x, analytic.dx, loss, options) < kBar);
  for (const auto& [name, weight] : p.weights.tensors) {
    INFO(name);
    CHECK(gradient_error(weight, analytic.gradients.at(name), loss, options) < kBar);
  }
}

// No tokens: nothing to write, and no gradient.
template <class Subject>
void check_layer_without_tokens(const LayerProblem<Subject>& p) {
  REQUIRE(p.x.view().size(0) == 0);
  for (const auto& [name, gradient] : run_layer(p).gradients) {
    INFO(name);
    CHECK(to_doubles(gradient) == std::vector<double>(static_cast<size_t>(gradient.view().numel())));
  }
}

}  // namespace longhaul::testing
