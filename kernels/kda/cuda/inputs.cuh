// What the kernels read of a call, and the functions that raw inputs go through.
#pragma once

#include "kernels/kda/cuda/layout.cuh"

namespace longhaul::kda::cuda {

inline constexpr float kLog2E = 1.44269504088896340736F;

// What the kernels read of a call. Raw inputs: q and k before their L2 norm, the logits of gate and beta.
struct InputParams {
  const uint16_t* q;            // bf16 [tokens, heads, K]
  const uint16_t* k;            // bf16 [tokens, heads, K]
  const float* g;               // [tokens, heads, K]
  const float* beta;            // [tokens, heads]
  const uint16_t* gate;         // bf16 [tokens, heads, K]; raw
  const uint16_t* beta_logits;  // bf16 [tokens, heads]; raw
  const float* a_log;           // [heads]; raw, absent: zero
  const float* dt_bias;         // [heads, K]; raw, absent: zero
  float gate_bound;             // raw: g = gate_bound * sigmoid(e^{a_log} (gate + dt_bias))
  int q_stride;                 // elements between tokens
  int k_stride;
  int g_stride;                 // of g or gate
  int heads;
  float scale;
};

enum class Inputs : uint8_t { Ready, Raw };

__device__ __forceinline__ float sigmoid_fast(float x) { return reciprocal_fast(1.0F + exp2_fast(-kLog2E * x)); }

}  // namespace longhaul::kda::cuda
