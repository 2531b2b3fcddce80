// See compare.h.
#include "tests/support/compare.h"

#include <cstring>

namespace longhaul::testing {
namespace {

double element(const TensorView& view, const std::byte* at) {
  switch (view.dtype()) {
    case DType::F64: return *reinterpret_cast<const double*>(at);
    case DType::F32: return static_cast<double>(*reinterpret_cast<const float*>(at));
    case DType::BF16: return static_cast<double>(static_cast<float>(*reinterpret_cast<const BFloat16*>(at)));
    case DType::I64: return static_cast<double>(*reinterpret_cast<const int64_t*>(at));
    case DType::I32: return *reinterpret_cast<const int32_t*>(at);
    case DType::U8: return *reinterpret_cast<const uint8_t*>(at);
  }
  return 0;
}

void collect(const TensorView& view, std::vector<double>& out) {
  if (view.rank() == 0) {
    out.push_back(element(view, static_cast<const std::byte*>(view.raw())));
    return;
  }
  if (view.rank() == 1) {
    for (int64_t i = 0; i < view.size(0); ++i) {
      out.push_back(element(view, static_cast<const std::byte*>(view.raw()) + i * view.stride(0) * size_of(view.dtype())));
    }
    return;
  }
  for (int64_t i = 0; i < view.size(0); ++i) {
    collect(view[i], out);
  }
}

}  // namespace

std::vector<double> to_doubles(const TensorView& view) {
  std::vector<double> out;
  out.reserve(static_cast<size_t>(view.numel()));
  collect(view, out);
  return out;
}

Difference difference(const TensorView& got, const TensorView& wanted) {
  LH_CHECK(got.shape() == wanted.shape(), "compared {} with {}", got.to_string(), wanted.to_string());
  const std::vector<double> a = to_doubles(got);
  const std::vector<double> b = to_doubles(wanted);
  Difference result;
  double square = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isfinite(a[i]) != std::isfinite(b[i]) || (!std::isfinite(a[i]) && std::isnan(a[i]) != std::isnan(b[i]))) {
      result.same_nans = false;
      result.worst_index = static_cast<int64_t>(i);
      break;
    }
    if (!std::isfinite(a[i])) {
      continue;
    }
    const double error = std::abs(a[i] - b[i]);
    if (error > result.max_abs) {
      result.max_abs = error;
      result.worst_index = static_cast<int64_t>(i);
    }
    square += error * error;
    norm += b[i] * b[i];
  }
  result.relative_l2 = std::sqrt(square) / std::max(std::sqrt(norm), 1e-300);
  if (square == 0) {
    result.relative_l2 = 0;
  }
  result.text = fmt::format("max abs {:.3e} at {}, relative L2 {:.3e}{}", result.max_abs, result.worst_index,
                            result.relative_l2, result.same_nans ? "" : ", NaN or infinity at different places");
  return result;
}

bool bitwise_equal(const TensorView& a, const TensorView& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && a.is_contiguous() && b.is_contiguous() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0);
}

}  // namespace longhaul::testing
