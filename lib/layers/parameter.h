// What a parameter is before it has memory: type, shape, initialisation, and how the optimizer and the parallel layout
// treat it. A layer's Weights<ParameterSpec> describes it once; memory, gradients, optimizer state, checkpoint names and
// sharding all follow from that one description.
#pragma once

#include <cstdint>

#include "tensor/tensor_view.h"

namespace longhaul {

enum class InitKind : uint8_t {
  Zeros,
  Ones,
  Normal,       // mean 0, stddev `init_scale`
  DtBias,       // inverse softplus of dt, log-uniform in [1e-3, 1e-1], at least 1e-4 (flash-linear-attention)
  LogUniform16  // log of a uniform number in [1, 16], for a_log of the softplus decay (flash-linear-attention)
};

enum class WeightDecay : uint8_t { Yes, No };

struct ParameterSpec {
  DType dtype = DType::F32;
  Shape shape;  // of this rank's part
  InitKind init = InitKind::Normal;
  double init_scale = 0.02;
  WeightDecay decay = WeightDecay::Yes;
  // Experts are split over the ranks of the expert group along dimension 0: this rank holds rows
  // [first_expert, first_expert + shape[0]) of num_experts. num_experts == 0: not an expert parameter.
  int64_t num_experts = 0;
  int64_t first_expert = 0;

  [[nodiscard]] bool is_expert() const noexcept { return num_experts > 0; }
  // The shape over all expert ranks.
  [[nodiscard]] Shape global_shape() const {
    Shape global = shape;
    if (is_expert()) {
      global.set(0, num_experts);
    }
    return global;
  }
};

// A weight matrix [out, in] or stack of them, drawn from a normal distribution.
[[nodiscard]] inline ParameterSpec matrix(DType dtype, const Shape& shape, double stddev) {
  return {.dtype = dtype, .shape = shape, .init = InitKind::Normal, .init_scale = stddev};
}
// A vector that scales, started at one and not decayed.
[[nodiscard]] inline ParameterSpec norm_scale(DType dtype, int64_t dim) {
  return {.dtype = dtype, .shape = {dim}, .init = InitKind::Ones, .decay = WeightDecay::No};
}

}  // namespace longhaul
