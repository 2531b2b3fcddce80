// Finite differences in double against an analytic gradient, and random test inputs.
#pragma once

#include <functional>
#include <string_view>

#include "tensor/tensor.h"

namespace longhaul::testing {

// A CPU tensor (f32, f64 or bf16) of stddev * normal values, a pure function of `name` and shape.
[[nodiscard]] Tensor random_tensor(DType dtype, const Shape& shape, std::string_view name, double stddev = 1, double mean = 0);
// i64 [documents + 1] from document lengths.
[[nodiscard]] Tensor cu_seqlens_of(const std::vector<int64_t>& lengths);

struct GradientCheckOptions {
  double step = 1e-5;
  int64_t max_elements = 48;  // elements tried, spread evenly over the tensor
};

// Perturbs elements of `input` (f64, contiguous, CPU; restored afterwards), calls `loss`, and returns the largest
// |finite difference - analytic| divided by the largest |analytic| or 1e-3, whichever is larger.
// Central differences with step 1e-5 reach about 1e-9 for smooth functions of order one.
[[nodiscard]] double gradient_error(const TensorView& input, const TensorView& analytic, const std::function<double()>& loss,
                                    const GradientCheckOptions& options = {});

// sum(a * b) over contiguous f64 tensors: the scalar loss <dy, y>.
[[nodiscard]] double dot(const TensorView& a, const TensorView& b);

}  // namespace longhaul::testing
