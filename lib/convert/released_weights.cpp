// See released_weights.h.
#include "convert/released_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "convert/external_names.h"
#include "model/config_json.h"

namespace longhaul {
namespace {

std::vector<std::filesystem::path> weight_files(const std::filesystem::path& directory) {
  const std::filesystem::path single = directory / "model.safetensors";
  if (std::filesystem::exists(single)) {
    return {single};
  }
  const std::filesystem::path index = directory / "model.safetensors.index.json";
  std::ifstream file(index);
  if (!file) {
    throw ConversionError("{} holds neither model.safetensors nor model.safetensors.index.json", directory.string());
  }
  std::set<std::string> names;
  try {
    for (const auto& [tensor, name] : nlohmann::json::parse(file).at("weight_map").items()) {
      names.insert(name.get<std::string>());
    }
  } catch (const nlohmann::json::exception& error) {
    throw ConversionError("{}: not an index of tensors: {}", index.string(), error.what());
  }
  std::vector<std::filesystem::path> files;
  for (const std::string& name : names) {
    files.push_back(directory / name);
  }
  return files;
}

bool is_selection_bias(std::string_view name) { return name.ends_with("e_score_correction_bias"); }

void write_elements(const TensorView& destination, int64_t to, std::span<const double> values) {
  if (destination.dtype() == DType::F64) {
    std::copy(values.begin(), values.end(), destination.data<double>() + to);
    return;
  }
  std::transform(values.begin(), values.end(), destination.data<float>() + to, [](double x) { return static_cast<float>(x); });
}

// A list for an error message, cut after some entries.
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 20;
  const std::vector<std::string> first(names.begin(), names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), kShown)));
  return fmt::format("{}{}", fmt::join(first, "\n  "), names.size() > kShown ? fmt::format("\n  … and {} more", names.size() - kShown) : "");
}

}  // namespace

ReleasedModel::ReleasedModel(const std::filesystem::path& directory) : options_(model_options_from_config_file(directory / "config.json")) {
  for (const std::filesystem::path& path : weight_files(directory)) {
    files_.emplace_back(path);
  }
}

void ReleasedModel::load(const Parameters& parameters) const {
  std::map<std::string, int64_t> filled;
  std::vector<std::string> problems;
  for (const SafetensorsFile& file : files_) {
    for (const auto& [name, entry] : file.entries()) {
      if (is_selection_bias(name)) {
        continue;
      }
      const std::vector<TensorPart> parts = parts_of(name, entry.shape, options_);
      const std::vector<double> values = file.read_as_f64(name);
      for (const TensorPart& part : parts) {
        const Parameter* parameter = parameters.find(part.parameter);
        if (parameter == nullptr || part.to + part.count > parameter->value.numel() || part.first + part.count > std::ssize(values)) {
          problems.push_back(parameter == nullptr ? fmt::format("{}: the model has no {}", name, part.parameter)
                                                  : fmt::format("{} [{}]: does not fit {}", name, fmt::join(entry.shape, ", "),
                                                                parameter->value.to_string()));
          break;
        }
        write_elements(parameter->value, part.to, std::span(values).subspan(static_cast<size_t>(part.first), static_cast<size_t>(part.count)));
        filled[part.parameter] += part.count;
      }
      if (parts.empty()) {
        problems.push_back(fmt::format("{}: belongs to nothing in this model", name));
      }
    }
  }
  for (const Parameter& parameter : parameters.all()) {
    const auto found = filled.find(parameter.name);
    const int64_t count = found == filled.end() ? 0 : found->second;
    if (count != parameter.value.numel()) {
      problems.push_back(fmt::format("{}: {} of {} elements are in the files", parameter.name, count, parameter.value.numel()));
    }
  }
  if (!problems.empty()) {
    throw ConversionError("{} tensors do not match the model:\n  {}", problems.size(), listed(problems));
  }
}

std::vector<std::vector<double>> ReleasedModel::selection_bias() const {
  std::vector<std::vector<double>> biases(static_cast<size_t>(options_.num_hidden_layers));
  for (const SafetensorsFile& file : files_) {
    for (const auto& [name, entry] : file.entries()) {
      if (!is_selection_bias(name)) {
        continue;
      }
      for (int64_t layer = 0; layer < options_.num_hidden_layers; ++layer) {
        const std::vector<TensorPart> parts = parts_of(name, entry.shape, options_);
        if (!parts.empty() && parts[0].parameter == selection_bias_name(layer)) {
          biases[static_cast<size_t>(layer)] = file.read_as_f64(name);
        }
      }
    }
  }
  for (int64_t layer = 0; layer < options_.num_hidden_layers; ++layer) {
    const auto& bias = biases[static_cast<size_t>(layer)];
    if (!options_.is_dense(layer) && std::ssize(bias) != options_.num_experts) {
      throw ConversionError("{}: {} values are in the files, the model has {} experts", selection_bias_name(layer), bias.size(), options_.num_experts);
    }
  }
  return biases;
}

}  // namespace longhaul
