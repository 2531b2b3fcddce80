// See golden_case.h.
#include "tests/support/golden_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/cast.h"
#include "tests/support/compare.h"

namespace longhaul::testing {
namespace {

// What accumulated gradients start from; exact in every type.
constexpr double kStart = 0.5;

Tensor tensor_of(const std::vector<double>& values, DType dtype, const Shape& shape) {
  const auto as = [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> converted(values.size());
    std::transform(values.begin(), values.end(), converted.begin(), [](double x) { return static_cast<T>(x); });
    return Tensor::from(converted, shape);
  };
  switch (dtype) {
    case DType::F64: return as(double{});
    case DType::F32: return as(float{});
    case DType::I64: return as(int64_t{});
    case DType::I32: return as(int32_t{});
    default: throw UsageError("golden tensors are not {}", to_string(dtype));
  }
}

Shape shape_of(const std::vector<int64_t>& sizes) {
  Shape shape;
  for (const int64_t size : sizes) {
    shape.append(size);
  }
  return shape;
}

// "weight.experts.w1.weight" -> "weight.experts." and "w1.weight"
std::optional<std::pair<std::string, std::string>> split_at_experts(const std::string& name) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = name.find(kExperts);
  if (at == std::string::npos) {
    return std::nullopt;
  }
  return std::pair(name.substr(0, at + kExperts.size()), name.substr(at + kExperts.size()));
}

bool is_integer(const SafetensorsEntry& entry) { return entry.dtype.starts_with('I'); }

}  // namespace

GoldenCase::GoldenCase(const std::filesystem::path& file, DType dtype) : file_(file), dtype_(dtype) {}

std::string GoldenCase::text(const char* key) const {
  const auto found = file_.metadata().find(key);
  LH_CHECK(found != file_.metadata().end(), "{} has no option {}", file_.path().string(), key);
  return found->second;
}
double GoldenCase::number(const char* key) const { return std::stod(text(key)); }
int64_t GoldenCase::integer(const char* key) const { return std::stoll(text(key)); }
std::optional<double> GoldenCase::maybe_number(const char* key) const {
  return text(key) == "none" ? std::nullopt : std::optional(number(key));
}

GoldenCase::Stored GoldenCase::stored(const std::string& name) const {
  if (const SafetensorsEntry* entry = file_.find(name)) {
    return {.values = file_.read_as_f64(name), .shape = shape_of(entry->shape), .is_integer = is_integer(*entry), .names = {name}};
  }
  const auto parts = split_at_experts(name);
  LH_CHECK(parts.has_value(), "{} has no tensor {}", file_.path().string(), name);
  Stored stack;
  std::vector<int64_t> sizes{0};
  for (;; ++sizes[0]) {
    const std::string one = fmt::format("{}{}.{}", parts->first, sizes[0], parts->second);
    const SafetensorsEntry* entry = file_.find(one);
    if (entry == nullptr) {
      break;
    }
    if (sizes[0] == 0) {
      sizes.insert(sizes.end(), entry->shape.begin(), entry->shape.end());
    }
    const std::vector<double> values = file_.read_as_f64(one);
    stack.values.insert(stack.values.end(), values.begin(), values.end());
    stack.names.push_back(one);
  }
  LH_CHECK(sizes[0] > 0, "{} has no tensor {}", file_.path().string(), name);
  stack.shape = shape_of(sizes);
  return stack;
}

TensorView GoldenCase::operator[](const std::string& name) {
  const auto found = arguments_.find(name);
  if (found != arguments_.end()) {
    return found->second;
  }
  const Stored tensor = stored(name);
  owned_.push_back(tensor_of(tensor.values, tensor.is_integer ? DType::I32 : dtype_, tensor.shape));
  return arguments_[name] = owned_.back();
}

TensorView GoldenCase::cu_seqlens() {
  const Stored bounds = stored("in.cu_seqlens");
  owned_.push_back(tensor_of(bounds.values, DType::I64, bounds.shape));
  return owned_.back();
}

TensorView GoldenCase::tensor(const std::vector<double>& values, const Shape& shape) {
  owned_.push_back(tensor_of(values, dtype_, shape));
  return owned_.back();
}

TensorView GoldenCase::temporary(const Shape& shape) { return temporary(dtype_, shape); }
TensorView GoldenCase::temporary(DType dtype, const Shape& shape) {
  const bool is_float = dtype == DType::F64 || dtype == DType::F32;
  const double poison = is_float ? std::numeric_limits<double>::quiet_NaN() : -1;
  owned_.push_back(tensor_of(std::vector<double>(static_cast<size_t>(shape.numel()), poison), dtype, shape));
  return owned_.back();
}

TensorView GoldenCase::promise(const std::string& name, DType dtype, double start) {
  const Stored reference = stored(name);
  owned_.push_back(
      tensor_of(std::vector<double>(reference.values.size(), start), reference.is_integer ? DType::I32 : dtype, reference.shape));
  pending_.push_back({.name = name, .view = owned_.back(), .start = std::isnan(start) ? 0 : start});
  return owned_.back();
}
TensorView GoldenCase::out(const std::string& name) {
  const bool integers = has("out." + name) && is_integer(file_.at("out." + name));
  return promise("out." + name, dtype_, integers ? -1 : std::numeric_limits<double>::quiet_NaN());
}
TensorView GoldenCase::grad(const std::string& name) { return promise("grad." + name, dtype_, std::numeric_limits<double>::quiet_NaN()); }
TensorView GoldenCase::grad_sum(const std::string& name, DType dtype) { return promise("grad." + name, dtype, kStart); }

void GoldenCase::expect(const std::string& name, const std::vector<double>& got) { expected_[name] = got; }

void GoldenCase::compare(const std::string& name, const std::vector<double>& got, double tolerance, std::vector<std::string>& problems,
                         std::set<std::string>& compared) const {
  const Stored reference = stored(name);
  compared.insert(reference.names.begin(), reference.names.end());
  if (got.size() != reference.values.size()) {
    problems.push_back(fmt::format("{}: {} elements, wanted {}", name, got.size(), reference.values.size()));
    return;
  }
  double square = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = got[i] - reference.values[i];
    square += error * error;
    norm += reference.values[i] * reference.values[i];
  }
  // Written so that NaN is a problem.
  const double limit = reference.is_integer ? 0 : tolerance * std::sqrt(norm);
  if (!(std::sqrt(square) <= limit)) {
    problems.push_back(fmt::format("{}: |difference| {:.3e}, |reference| {:.3e}", name, std::sqrt(square), std::sqrt(norm)));
  }
}

std::vector<std::string> GoldenCase::problems(double tolerance) const {
  std::vector<std::string> problems;
  std::set<std::string> compared;
  for (const Pending& result : pending_) {
    std::vector<double> got = to_doubles(result.view);
    if (result.view.dtype() != DType::I32) {
      std::for_each(got.begin(), got.end(), [&](double& x) { x -= result.start; });
    }
    compare(result.name, got, tolerance, problems, compared);
  }
  for (const auto& [name, got] : expected_) {
    compare(name, got, tolerance, problems, compared);
  }
  for (const std::string& name : file_.names()) {
    const bool is_result = name.starts_with("out.") || name.starts_with("grad.");
    const bool is_left_out =
        std::any_of(left_out_.begin(), left_out_.end(), [&](const std::string& prefix) { return name.starts_with(prefix); });
    if (is_result && !is_left_out && !compared.contains(name)) {
      problems.push_back(name + ": not computed");
    }
  }
  return problems;
}

}  // namespace longhaul::testing
