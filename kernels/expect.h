// Argument checks that several operations share, beyond those of tensor/tensor_view.h. Each throws ShapeError naming the
// operation and the argument, with what it got and what it wants.
#pragma once

#include <string_view>

#include "tensor/tensor_view.h"

namespace longhaul {

// `wanted` describes the shape in words, for example "[tokens, hidden]". Use it on the argument that defines the sizes.
inline void expect_rank(std::string_view op, std::string_view argument, const TensorView& view, int rank,
                        std::string_view wanted) {
  if (!view.is_present() || view.rank() != rank) {
    throw ShapeError("{}: {} must be {}, got {}", op, argument, wanted, view.to_string());
  }
}

// f32, f64 or bf16.
inline void expect_float(std::string_view op, std::string_view argument, const TensorView& view) {
  if (!view.is_present() || (view.dtype() != DType::F32 && view.dtype() != DType::F64 && view.dtype() != DType::BF16)) {
    throw ShapeError("{}: {} must be a float tensor, got {}", op, argument, view.to_string());
  }
}

// For gradients that may arrive in the compute type or in its accurate type.
inline void expect_compute_or_accurate(std::string_view op, std::string_view argument, const TensorView& view,
                                       DType compute) {
  if (view.dtype() != compute && view.dtype() != accurate_type(compute)) {
    throw ShapeError("{}: {} must be {} or {}, got {}", op, argument, to_string(compute), to_string(accurate_type(compute)),
                     view.to_string());
  }
}

// A weight gradient, contiguous: f64, or the accurate type.
inline void expect_gradient(std::string_view op, std::string_view argument, const TensorView& view, DType compute, const Shape& wanted) {
  expect_shape(op, argument, view, wanted);
  if (view.dtype() != DType::F64 && view.dtype() != accurate_type(compute)) {
    throw ShapeError("{}: {} must be f64 or {}, got {}", op, argument, to_string(accurate_type(compute)), view.to_string());
  }
  expect_contiguous(op, argument, view);
}

// Elements of a row lie beside each other; the other dimensions may be strided.
inline void expect_unit_stride(std::string_view op, std::string_view argument, const TensorView& view) {
  if (view.rank() > 0 && view.size(-1) > 1 && view.stride(-1) != 1) {
    throw ShapeError("{}: {} must have an innermost stride of 1, got {}", op, argument, view.stride(-1));
  }
}

// Shape, dtype and innermost stride 1: an argument whose rows may be strided.
inline void expect_rows(std::string_view op, std::string_view argument, const TensorView& view, DType dtype,
                        const Shape& wanted) {
  expect_shape(op, argument, view, wanted);
  expect_dtype(op, argument, view, dtype);
  expect_unit_stride(op, argument, view);
}

}  // namespace longhaul
