// Mixture layers for the tests of this folder.
#pragma once

#include "layers/moe/moe_layer.h"
#include "tests/support/layer_conformance.h"
#include "tests/support/layer_group.h"

namespace longhaul::testing {

// Kimi K3's form: latent width with norm, shared experts, SiTU-GLU.
[[nodiscard]] inline MoeLayer latent_moe(DType dtype) {
  return {{.hidden = 9,
           .num_experts = 8,
           .top_k = 2,
           .expert_intermediate = 5,
           .latent = 6,
           .latent_norm = true,
           .shared_intermediate = 7,
           .activation = {.kind = ActivationKind::SituGlu, .beta_gate = 2, .beta_up = 3},
           .dtype = dtype}};
}
// Kimi Linear's form: the full width, no norm, SwiGLU, scaled weights.
[[nodiscard]] inline MoeLayer plain_moe(DType dtype) {
  return {{.hidden = 9,
           .num_experts = 8,
           .top_k = 3,
           .expert_intermediate = 5,
           .latent = 0,
           .shared_intermediate = 5,
           .scaling = 2.446,
           .activation = {.kind = ActivationKind::SwiGlu},
           .dtype = dtype}};
}

// A bias [experts] that steers the choice, in the layer's type.
[[nodiscard]] inline Tensor bias_of(const MoeLayer& layer, const std::string& name, double stddev) {
  return random_tensor(layer.options.dtype, {layer.options.num_experts}, name, stddev);
}

inline void set_biases(const Tensor& bias, const std::vector<double>& values) {
  for (size_t e = 0; e < values.size(); ++e) {
    if (bias.view().dtype() == DType::F64) {
      bias.values<double>()[e] = values[e];
    } else {
      bias.values<float>()[e] = static_cast<float>(values[e]);
    }
  }
}

[[nodiscard]] inline RouterState router_with(const TensorView& bias) {
  return {.bias = bias, .forced_experts = {}, .counts = {}, .load = {}};
}

}  // namespace longhaul::testing
