// See parameters.h.
#include "model/parameters.h"

#include <algorithm>
#include <cmath>

#include "base/cast.h"
#include "kernels/elementwise/elementwise.h"

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

Parameters::Parameters(const StageModel& model, Device device) {
  StageModel::Weights<ParameterSpec> specs = model.weights();
  values_.layers.resize(specs.layers.size());
  gradients_.layers.resize(specs.layers.size());
  model.for_each(specs, [&](const std::string& name, ParameterSpec& spec) { parameters_.push_back({.name = name, .spec = spec}); });

  // One block a kind. All parameters of a model on the CPU have one type; where types are mixed, the accurate ones are
  // laid out in the same block by bytes.
  const DType exact = accurate_type(model.dtype());
  int64_t dense = 0;
  int64_t experts = 0;
  for (const Parameter& p : parameters_) {
    (p.spec.is_expert() ? experts : dense) += padded(p.spec.shape.numel());
  }
  value_memory_ = Tensor(exact, {dense + experts}, device);
  gradient_memory_ = Tensor(gradient_type(model.dtype(), device), {dense + experts}, device);
  dense_gradients_ = gradient_memory_.view().slice(0, 0, dense);
  expert_gradients_ = gradient_memory_.view().slice(0, dense, dense + experts);

  int64_t next_dense = 0;
  int64_t next_expert = dense;
  for (Parameter& p : parameters_) {
    LH_CHECK(p.spec.dtype == exact, "{} is {}, but this build keeps parameters in {}", p.name, to_string(p.spec.dtype), to_string(exact));
    int64_t& next = p.spec.is_expert() ? next_expert : next_dense;
    const int64_t n = p.spec.shape.numel();
    p.value = value_memory_.view().slice(0, next, next + n).reshape(p.spec.shape);
    p.gradient = gradient_memory_.view().slice(0, next, next + n).reshape(p.spec.shape);
    next += padded(n);
  }
  size_t at = 0;
  model.for_each(values_, [&](const std::string&, TensorView& view) { view = parameters_[at++].value; });
  at = 0;
  model.for_each(gradients_, [&](const std::string&, TensorView& view) { view = parameters_[at++].gradient; });

  ExecContext ctx(device, ExecContext::Mode::Execute, Arena(device, "none", 0));
  fill(ctx, value_memory_, 0);  // the gaps between tensors stay zero
  zero_gradients(ctx);
}

void Parameters::initialise(ExecContext& ctx, uint64_t seed) {
  for (const Parameter& p : parameters_) {
    initialise_parameter(ctx, p.spec, p.name, seed, p.value);
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
    case InitKind::LogUniform16:
      // Small vectors of the accurate type, computed on the host in double.
      for (int64_t i = 0; i < value.numel(); ++i) {
        const double x = special_value(spec.init, stream, first + i);
        if (value.dtype() == DType::F64) {
          value.data<double>()[i] = x;
        } else {
          value.data<float>()[i] = static_cast<float>(x);
        }
      }
      return;
  }
}

}  // namespace longhaul
