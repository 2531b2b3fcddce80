// Helpers for the tests of operations: poisoned outputs, conversions, strided copies, and checks that hold for every
// operation (errors name their argument).
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "tensor/tensor.h"
#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"

namespace longhaul::testing {

// Writes `value` to every element of a contiguous f32 or f64 tensor.
inline void set_all(const TensorView& view, double value) {
  for (int64_t i = 0; i < view.numel(); ++i) {
    if (view.dtype() == DType::F64) {
      view.data<double>()[i] = value;
    } else {
      view.data<float>()[i] = static_cast<float>(value);
    }
  }
}

// An output that shows whether every element was overwritten.
[[nodiscard]] inline Tensor poisoned(DType dtype, const Shape& shape) {
  Tensor tensor(dtype, shape);
  set_all(tensor, std::numeric_limits<double>::quiet_NaN());
  return tensor;
}

// A contiguous copy in another float type.
[[nodiscard]] inline Tensor converted(const TensorView& view, DType dtype) {
  const std::vector<double> values = to_doubles(view);
  Tensor tensor(dtype, view.shape());
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::F64) {
      tensor.values<double>()[i] = values[i];
    } else {
      tensor.values<float>()[i] = static_cast<float>(values[i]);
    }
  }
  return tensor;
}

// A matrix inside a wider one: columns [left, left + columns) of [rows, left + columns + right], the rest NaN.
struct StridedMatrix {
  Tensor storage;
  TensorView view;  // [rows, columns]

  StridedMatrix(const TensorView& matrix, int64_t left, int64_t right)
      : storage(poisoned(matrix.dtype(), {matrix.size(0), left + matrix.size(1) + right})),
        view(storage.view().slice(1, left, left + matrix.size(1))) {
    const auto bytes = static_cast<size_t>(matrix.size(1) * size_of(matrix.dtype()));
    for (int64_t row = 0; row < matrix.size(0) && bytes > 0; ++row) {
      std::memcpy(view[row].raw(), matrix[row].raw(), bytes);
    }
  }
  // A contiguous copy of the matrix.
  [[nodiscard]] Tensor contiguous() const { return converted(view, view.dtype()); }
  // Nothing beside the matrix was written: all of it is still NaN.
  [[nodiscard]] bool surroundings_untouched() const {
    int64_t finite = 0;
    for (const double value : to_doubles(storage)) {
      finite += std::isnan(value) ? 0 : 1;
    }
    return finite == view.numel();
  }
};

// Runs fn, which must throw ShapeError with a message that names `argument`.
inline void check_shape_error(std::string_view argument, const std::function<void()>& fn) {
  try {
    fn();
  } catch (const ShapeError& error) {
    const std::string message = error.what();
    INFO(message);
    CHECK(message.find(": " + std::string(argument) + " must") != std::string::npos);
    return;
  }
  FAIL("no ShapeError for " << argument);
}

// A view with shape and type but no memory, as operations see it while planning.
[[nodiscard]] inline TensorView planned(DType dtype, const Shape& shape) { return {nullptr, dtype, shape}; }

}  // namespace longhaul::testing
