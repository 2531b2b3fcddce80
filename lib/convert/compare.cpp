// See compare.h.
#include "convert/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/cast.h"
#include "comm/loopback_device_comm.h"
#include "comm/self_host_comm.h"
#include "convert/external_names.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/elementwise/elementwise.h"
#include "tensor/host_copy.h"

namespace longhaul {
namespace {

constexpr std::string_view kGradient = "grad.";

std::vector<double> doubles_of(const TensorView& view) {
  std::vector<double> out(static_cast<size_t>(view.numel()));
  const HostCopy host(view);
  for (size_t i = 0; i < out.size(); ++i) {
    switch (view.dtype()) {
      case DType::F64: out[i] = host.view().data<double>()[i]; break;
      case DType::BF16: out[i] = static_cast<double>(static_cast<float>(host.view().data<BFloat16>()[i])); break;
      default: out[i] = static_cast<double>(host.view().data<float>()[i]);
    }
  }
  return out;
}

CompareRow row(std::string name, std::span<const double> ours, std::span<const double> reference) {
  CompareRow result{.name = std::move(name)};
  double square = 0;
  double norm = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double error = std::abs(ours[i] - reference[i]);
    result.max_abs = std::isnan(error) ? INFINITY : std::max(result.max_abs, error);
    result.scale = std::max(result.scale, std::abs(reference[i]));
    square += error * error;
    norm += reference[i] * reference[i];
  }
  result.relative_l2 = std::isnan(square) ? INFINITY : square == 0 ? 0 : std::sqrt(square / std::max(norm, 1e-300));
  return result;
}

// Without cu_seqlens every row of input_ids [rows, tokens] is a document.
std::vector<int64_t> document_bounds(const SafetensorsFile& file, int64_t tokens) {
  if (file.find("cu_seqlens") != nullptr) {
    return file.read_as_i64("cu_seqlens");
  }
  const std::vector<int64_t>& shape = file.at("input_ids").shape;
  const int64_t rows = shape.size() < 2 ? 1 : tokens / std::max<int64_t>(shape.back(), 1);
  std::vector<int64_t> bounds{0};
  for (int64_t row = 1; row <= rows; ++row) {
    bounds.push_back(row * tokens / rows);
  }
  return bounds;
}

// The recorded inputs as one packed micro-batch.
struct Inputs {
  Tensor ids, targets, cu_seqlens;
  int64_t valid_targets = 0;

  Inputs(const SafetensorsFile& file, Device device) {
    const auto int32s = [&](const char* name) {
      std::vector<int32_t> values;
      for (const int64_t value : file.read_as_i64(name)) {
        values.push_back(narrow<int32_t>(value));
      }
      return values;
    };
    const std::vector<int32_t> tokens = int32s("input_ids");
    const std::vector<int32_t> wanted = int32s("targets");
    const auto n = narrow<int64_t>(tokens.size());
    const std::vector<int64_t> bounds = document_bounds(file, n);
    if (wanted.size() != tokens.size() || bounds.empty() || bounds.front() != 0 || bounds.back() != n ||
        !std::is_sorted(bounds.begin(), bounds.end())) {
      throw ConversionError("{}: {} input_ids, {} targets, cu_seqlens [{}] do not belong together", file.path().string(), tokens.size(),
                            wanted.size(), fmt::join(bounds, ", "));
    }
    ids = copy_to(Tensor::from(tokens, {n}), device);
    targets = copy_to(Tensor::from(wanted, {n}), device);
    cu_seqlens = copy_to(Tensor::from(bounds, {narrow<int64_t>(bounds.size())}), device);
    valid_targets = std::count_if(wanted.begin(), wanted.end(), [](int32_t t) { return t != kIgnoredTarget; });
  }
};

// The selection biases, and the recorded routes where they are to be taken.
struct Routers {
  std::vector<Tensor> owners;
  std::vector<RouterState> states;  // of all layers

  Routers(const ReleasedModel& released, const StageModel& model, const SafetensorsFile& file, const CompareOptions& options)
      : states(model.layers().size()) {
    const std::vector<std::vector<double>> biases = released.selection_bias();
    const int64_t top_k = released.options().num_experts_per_token;
    for (size_t i = 0; i < states.size(); ++i) {
      if (model.layers()[i].is_dense) {
        continue;
      }
      const Shape experts{released.options().num_experts};
      const Tensor bias = options.dtype == DType::F64 ? Tensor::from(biases[i], experts)
                                                      : Tensor::from(std::vector<float>(biases[i].begin(), biases[i].end()), experts);
      owners.push_back(copy_to(bias, options.device));
      states[i].bias = owners.back();
      const std::string routes = fmt::format("routes.{}", i);
      if (options.routes == CompareOptions::Routes::Forced && file.find(routes) != nullptr) {
        std::vector<int32_t> forced;
        for (const int64_t expert : file.read_as_i64(routes)) {
          forced.push_back(narrow<int32_t>(expert));
        }
        owners.push_back(copy_to(Tensor::from(forced, {div_exact(narrow<int64_t>(forced.size()), top_k), top_k}), options.device));
        states[i].forced_experts = owners.back();
      }
    }
  }
};

// Compares every "grad.NAME" with the parameters' gradients, and notes what has no counterpart. What the file leaves out
// must be zero here: other programs have no gradient for an expert that no token chose.
void compare_gradients(const SafetensorsFile& file, const ModelOptions& options, const Parameters& parameters, CompareReport& report) {
  std::map<std::string, std::vector<double>> ours;
  for (const Parameter& parameter : parameters.all()) {
    ours[parameter.name] = doubles_of(parameter.gradient);
  }
  for (const auto& [name, entry] : file.entries()) {
    if (!name.starts_with(kGradient)) {
      continue;
    }
    const std::string own_name = name.substr(kGradient.size());
    const std::vector<double> reference = file.read_as_f64(name);
    const std::vector<TensorPart> parts = parts_of(own_name, entry.shape, options);
    std::vector<double> mine(reference.size());  // what no part covers is padding, without a gradient
    if (parts.empty()) {
      report.unmatched.push_back(own_name + " (belongs to nothing in this model)");
    }
    for (const TensorPart& part : parts) {
      const auto found = ours.find(part.parameter);
      if (found == ours.end() || part.to + part.count > std::ssize(found->second)) {
        report.unmatched.push_back(own_name + " (no such parameter)");
        continue;
      }
      const auto from = found->second.begin() + part.to;
      std::copy_n(from, part.count, mine.begin() + part.first);
      std::fill_n(from, part.count, 0.0);  // compared; what is left must be zero
    }
    report.gradients.push_back(row(own_name, mine, reference));
  }
  for (const auto& [name, gradient] : ours) {
    if (std::any_of(gradient.begin(), gradient.end(), [](double x) { return x != 0; })) {
      report.unmatched.push_back(name + " (not in the reference)");
    }
  }
  std::sort(report.gradients.begin(), report.gradients.end(),
            [](const CompareRow& a, const CompareRow& b) { return a.relative_l2 > b.relative_l2; });
}

void compare_routes(const SafetensorsFile& file, const StageModel& model, const StageModel::Saved& saved, CompareReport& report) {
  for (size_t i = 0; i < model.layers().size(); ++i) {
    const std::string name = fmt::format("routes.{}", model.layers()[i].layer);
    if (model.layers()[i].is_dense || file.find(name) == nullptr) {
      continue;
    }
    const std::vector<int64_t> reference = file.read_as_i64(name);
    const HostCopy chosen(saved.layers[i].moe.experts);
    const TensorView& ours = chosen.view();
    const int64_t top_k = ours.size(1);
    if (std::ssize(reference) != ours.numel()) {
      throw ConversionError("{}: {} has {} entries, wanted {}", file.path().string(), name, reference.size(), ours.numel());
    }
    for (int64_t slot = 0; slot < ours.numel(); ++slot) {
      const auto first = reference.begin() + slot / top_k * top_k;
      report.routes_equal += std::count(first, first + top_k, ours.data<int32_t>()[slot]);
      ++report.routes_total;
    }
  }
}

}  // namespace

bool CompareReport::within(double tolerance) const {
  const double loss_error = reference_loss ? std::abs(loss - *reference_loss) / std::max(std::abs(*reference_loss), 1e-300) : 0;
  return logits.relative_l2 <= tolerance && loss_error <= tolerance && routes_equal == routes_total && unmatched.empty() &&
         std::all_of(gradients.begin(), gradients.end(), [&](const CompareRow& g) { return g.relative_l2 <= tolerance; });
}

std::string CompareReport::text(double tolerance) const {
  constexpr size_t kShown = 12;
  std::string out =
      fmt::format("logits     relative L2 {:.3e}, max abs {:.3e} of {:.4g}\n", logits.relative_l2, logits.max_abs, logits.scale);
  out += reference_loss ? fmt::format("loss       {:.9f}, reference {:.9f}, difference {:.3e}\n", loss, *reference_loss,
                                      std::abs(loss - *reference_loss))
                        : fmt::format("loss       {:.9f}, not recorded in the reference\n", loss);
  out += routes_total > 0 ? fmt::format("routes     {} of {} equal ({:.4f} %)\n", routes_equal, routes_total,
                                        100.0 * static_cast<double>(routes_equal) / static_cast<double>(routes_total))
                          : std::string("routes     not recorded in the reference\n");
  if (!gradients.empty()) {
    out += fmt::format("gradients  {} tensors, worst first\n", gradients.size());
    for (size_t i = 0; i < std::min(gradients.size(), kShown); ++i) {
      out += fmt::format("  {:.3e}  max abs {:.3e} of {:.4g}  {}\n", gradients[i].relative_l2, gradients[i].max_abs, gradients[i].scale,
                         gradients[i].name);
    }
  }
  for (const std::string& name : unmatched) {
    out += "unmatched  " + name + "\n";
  }
  return out + fmt::format("{} tolerance {:g}\n", within(tolerance) ? "within" : "BEYOND", tolerance);
}

CompareReport compare(const ReleasedModel& released, const std::filesystem::path& reference, const CompareOptions& options) {
  const bool on_gpu = options.device.kind == DeviceKind::Cuda;
  if (options.dtype == (on_gpu ? DType::F64 : DType::BF16)) {
    throw UsageError("compare: {} does not compute in {}; use {}", to_string(options.device), to_string(options.dtype),
                     on_gpu ? "fp32 or bf16" : "fp64 or fp32");
  }
  const SafetensorsFile file(reference);
  const Inputs inputs(file, options.device);
  SelfHostComm host;
  LoopbackDeviceComm device;
  const Group alone{"alone", 0, 1, host, device};
  const StageRange all{.first_layer = 0, .last_layer = released.options().num_hidden_layers, .has_embedding = true, .has_head = true};
  const StageModel model(released.options(), all, options.dtype, alone);
  ExecContext ctx = on_gpu ? ExecContext::cuda(options.device) : ExecContext::cpu();
  Parameters parameters(model, ctx);
  released.load(parameters);
  parameters.publish(ctx);

  const Routers routers(released, model, file, options);
  Arena keep(options.device, "activations", 0, Arena::Growth::Chunked);
  const Tensor loss_sum(DType::F64, {1}, options.device);
  fill(ctx, loss_sum, 0);
  const auto targets = static_cast<double>(std::max<int64_t>(inputs.valid_targets, 1));
  const StageModel::Loss loss{.sum = loss_sum, .grad_scale = 1.0 / targets};
  const MicroBatch batch{.ids = inputs.ids, .targets = inputs.targets, .cu_seqlens = inputs.cu_seqlens};
  const StageModel::Saved saved =
      model.forward(ctx, keep, parameters.values(), routers.states, batch, {}, loss, StageModel::Purpose::Train, &parameters.gradients());

  CompareReport report;
  report.loss = doubles_of(loss_sum).front() / targets;
  if (file.find("loss") != nullptr) {
    report.reference_loss = file.read_as_f64("loss").at(0);
  }
  if (file.find("logits") != nullptr) {
    const Tensor logits(options.dtype, {inputs.ids.view().numel(), released.options().vocab_size}, options.device);
    model.logits(ctx, parameters.values(), saved, logits);
    const std::vector<double> wanted = file.read_as_f64("logits");
    if (std::ssize(wanted) != logits.view().numel()) {
      throw ConversionError("{}: logits have {} values, the model has {}", reference.string(), wanted.size(), logits.view().numel());
    }
    report.logits = row("logits", doubles_of(logits), wanted);
  }
  compare_routes(file, model, saved, report);
  if (options.gradients == CompareOptions::Gradients::Compare) {
    (void)model.backward(ctx, keep, parameters.values(), saved, {}, parameters.gradients());
    compare_gradients(file, released.options(), parameters, report);
  }
  return report;
}

}  // namespace longhaul
