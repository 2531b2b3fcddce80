// See gradient_check.h.
#include "tests/support/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/philox.h"
#include "tests/support/compare.h"

namespace longhaul::testing {

Tensor random_tensor(DType dtype, const Shape& shape, std::string_view name, double stddev, double mean) {
  Tensor tensor(dtype, shape);
  const RandomStream stream{.seed = 20260, .stream = stream_id(std::string(name).c_str())};
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const double value = mean + stddev * stream.normal(static_cast<uint64_t>(i));
    const auto at = static_cast<size_t>(i);
    switch (dtype) {
      case DType::F64: tensor.values<double>()[at] = value; break;
      case DType::F32: tensor.values<float>()[at] = static_cast<float>(value); break;
      case DType::BF16: tensor.values<BFloat16>()[at] = BFloat16(static_cast<float>(value)); break;
      default: throw UsageError("random_tensor makes floats, not {}", to_string(dtype));
    }
  }
  return tensor;
}

Tensor cu_seqlens_of(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> bounds{0};
  for (const int64_t length : lengths) {
    bounds.push_back(bounds.back() + length);
  }
  return Tensor::from(bounds, {narrow<int64_t>(bounds.size())});
}

double gradient_error(const TensorView& input, const TensorView& analytic, const std::function<double()>& loss,
                      const GradientCheckOptions& options) {
  LH_CHECK(input.is_contiguous() && analytic.is_contiguous() && input.shape() == analytic.shape(), "{} against {}",
           input.to_string(), analytic.to_string());
  auto* values = input.data<double>();
  const auto* gradient = analytic.data<double>();
  const int64_t n = input.numel();
  double largest = 1e-3;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::abs(gradient[i]));
  }
  double worst = 0;
  const int64_t tries = std::min(n, options.max_elements);
  for (int64_t t = 0; t < tries; ++t) {
    const int64_t i = t * n / tries;
    const double kept = values[i];
    values[i] = kept + options.step;
    const double up = loss();
    values[i] = kept - options.step;
    const double down = loss();
    values[i] = kept;
    const double error = std::abs((up - down) / (2 * options.step) - gradient[i]);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst / largest;
}

double dot(const TensorView& a, const TensorView& b) {
  LH_CHECK(a.numel() == b.numel(), "{} and {}", a.to_string(), b.to_string());
  double sum = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    sum += a.data<double>()[i] * b.data<double>()[i];
  }
  return sum;
}

}  // namespace longhaul::testing
