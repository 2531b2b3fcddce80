// See released_weights.h.
#include "convert/released_weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "convert/external_names.h"
#include "convert/model_tensors.h"
#include "convert/released_directory.h"
#include "tensor/host_copy.h"

namespace longhaul {
namespace {

void copy_to(const TensorView& destination, std::span<const double> values) {
  const Tensor host(destination.dtype(), destination.shape());
  dispatch_float(destination.dtype(), "loading a model", [&](auto zero) {
    using T = decltype(zero);
    std::transform(values.begin(), values.end(), host.values<T>().begin(), [](double x) { return static_cast<T>(x); });
  });
  copy_between(host, destination);
}

std::vector<double> read_all(TensorSource& source, const SourceTensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.shape.numel()));
  source.read(tensor, std::vector<int64_t>(static_cast<size_t>(tensor.shape.rank()), 0), tensor.shape, values);
  return values;
}

}  // namespace

ReleasedModel::ReleasedModel(const std::filesystem::path& directory) : source_(open_model_source(directory)), options_(source_->options()) {}

void ReleasedModel::load(const Parameters& parameters) const {
  std::vector<std::string> problems;
  for (const Parameter& parameter : parameters.all()) {
    const SourceTensor* tensor = source_->find(std::string(kModelGroup) + parameter.name);
    if (tensor == nullptr) {
      problems.push_back(fmt::format("{}: is missing", parameter.name));
    } else if (tensor->shape != parameter.value.shape()) {
      problems.push_back(fmt::format("{}: has the shape {}, wanted {}", parameter.name, tensor->shape.to_string(), parameter.value.shape().to_string()));
    } else {
      copy_to(parameter.value, read_all(*source_, *tensor));
    }
  }
  if (!problems.empty()) {
    throw ConversionError("{} tensors do not match the model:\n  {}", problems.size(), listed(problems));
  }
}

std::vector<std::vector<double>> ReleasedModel::selection_bias() const {
  std::vector<std::vector<double>> biases(static_cast<size_t>(options_.num_hidden_layers));
  for (int64_t layer = 0; layer < options_.num_hidden_layers; ++layer) {
    if (options_.is_dense(layer)) {
      continue;
    }
    const SourceTensor* tensor = source_->find(std::string(kModelGroup) + selection_bias_name(layer));
    if (tensor == nullptr || tensor->shape.numel() != options_.num_experts) {
      throw ConversionError("{} is missing or has not one value for each of {} experts", selection_bias_name(layer), options_.num_experts);
    }
    biases[static_cast<size_t>(layer)] = read_all(*source_, *tensor);
  }
  return biases;
}

}  // namespace longhaul
