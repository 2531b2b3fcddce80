// See parameters.h.
#include "model/parameters.h"

#include <algorithm>
#include <cmath>

#include "base/cast.h"
#include "kernels/elementwise/elementwise.h"
#include "tensor/host_copy.h"

namespace longhaul {
namespace {

// Uniform on (0, 1) of element `index`, as double.
double uniform(const RandomStream& stream, int64_t index) { return static_cast<double>(stream.uniform(static_cast<uint64_t>(index))); }

double special_value(InitKind kind, const RandomStream& stream, int64_t index) {
  if (kind == InitKind::LogUniform16) {
    return std::log(1.0 + 15.0 * uniform(stream, index));
  }
  const double low = std::log(1e-3);
  const double high = std::log(1e-1);
  const double dt = std::max(std::exp(low + (high - low) * uniform(stream, index)), 1e-4);
  return dt + std::log(-std::expm1(-dt));  // softplus^-1(dt)
}

// Elements of the compute type, with room for the alignment of vector loads between tensors.
int64_t padded(int64_t elements) { return round_up(elements, 64); }

}  // namespace

Parameters::Parameters(const StageModel& model, ExecContext& ctx) {
  const Device device = ctx.device();
  StageModel::Weights<ParameterSpec> specs = model.weights();
  values_.layers.resize(specs.layers.size());
  gradients_.layers.resize(specs.layers.size());
  model.for_each(specs, [&](const std::string& name, ParameterSpec& spec) { parameters_.push_back({.name = name, .spec = spec}); });

  const DType exact = accurate_type(model.dtype());
  int64_t dense = 0;
  int64_t experts = 0;
  for (const Parameter& p : parameters_) {
    (p.spec.is_expert() ? experts : dense) += padded(p.spec.shape.numel());
  }
  value_memory_ = Tensor(exact, {dense + experts}, device);
  if (model.dtype() != exact) {
    compute_memory_ = Tensor(model.dtype(), {dense + experts}, device);
  }
  gradient_memory_ = Tensor(gradient_type(model.dtype(), device), {dense + experts}, device);
  dense_gradients_ = gradient_memory_.view().slice(0, 0, dense);
  expert_gradients_ = gradient_memory_.view().slice(0, dense, dense + experts);

  int64_t next_dense = 0;
  int64_t next_expert = dense;
  std::vector<TensorView> read_by_model;
  for (Parameter& p : parameters_) {
    int64_t& next = p.spec.is_expert() ? next_expert : next_dense;
    const int64_t n = p.spec.shape.numel();
    const auto part = [&](const Tensor& block) { return block.view().slice(0, next, next + n).reshape(p.spec.shape); };
    p.value = part(value_memory_);
    p.gradient = part(gradient_memory_);
    read_by_model.push_back(p.spec.dtype == exact ? p.value : part(compute_memory_));
    next += padded(n);
  }
  size_t at = 0;
  model.for_each(values_, [&](const std::string&, TensorView& view) { view = read_by_model[at++]; });
  at = 0;
  model.for_each(gradients_, [&](const std::string&, TensorView& view) { view = parameters_[at++].gradient; });

  fill(ctx, value_memory_, 0);  // the gaps between tensors stay zero
  zero_gradients(ctx);
}

void Parameters::initialise(ExecContext& ctx, uint64_t seed) {
  for (const Parameter& p : parameters_) {
    initialise_parameter(ctx, p.spec, p.name, seed, p.value);
  }
  publish(ctx);
}

void Parameters::publish(ExecContext& ctx) {
  if (compute_memory_.view().is_present()) {
    copy(ctx, value_memory_, compute_memory_);
  }
}

void Parameters::zero_gradients(ExecContext& ctx) { fill(ctx, gradient_memory_, 0); }

const Parameter* Parameters::find(std::string_view name) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(), [&](const Parameter& p) { return p.name == name; });
  return found == parameters_.end() ? nullptr : &*found;
}

void initialise_parameter(ExecContext& ctx, const ParameterSpec& spec, std::string_view name, uint64_t seed, TensorView value) {
  const RandomStream stream{.seed = seed, .stream = stream_id(std::string(name).c_str(), stream_id("init/"))};
  const int64_t first = spec.is_expert() ? spec.first_expert * (spec.shape.numel() / std::max<int64_t>(spec.shape[0], 1)) : 0;
  switch (spec.init) {
    case InitKind::Zeros: fill(ctx, value, 0); return;
    case InitKind::Ones: fill(ctx, value, 1); return;
    case InitKind::Normal: fill_normal(ctx, value, stream, 0, spec.init_scale, first); return;
    case InitKind::DtBias:
    case InitKind::LogUniform16: {
      // Small vectors of the accurate type, computed on the host in double.
      const Tensor host(value.dtype(), value.shape());
      dispatch_float(value.dtype(), "initialise_parameter", [&](auto zero) {
        using T = decltype(zero);
        for (int64_t i = 0; i < value.numel(); ++i) {
          host.values<T>()[static_cast<size_t>(i)] = static_cast<T>(special_value(spec.init, stream, first + i));
        }
      });
      copy_between(host, value);
      return;
    }
  }
}

}  // namespace longhaul
