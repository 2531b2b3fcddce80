// Scalar functions on the GPU, after kernels/math/activations.h: forms that neither overflow nor cancel.
#pragma once

namespace longhaul::gpu {

__device__ inline float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x >= 0 ? 1.0f : e) / (1.0f + e);
}

struct ValueAndDerivative {
  float value;
  float derivative;
};

__device__ inline ValueAndDerivative sigmoid_and_derivative(float x) {
  const float e = expf(-fabsf(x));
  const float inverse = 1.0f / (1.0f + e);
  return {(x >= 0 ? 1.0f : e) * inverse, e * inverse * inverse};
}

__device__ inline float silu(float x) { return x * sigmoid(x); }

__device__ inline ValueAndDerivative silu_and_derivative(float x) {
  const ValueAndDerivative s = sigmoid_and_derivative(x);
  return {x * s.value, s.value + x * s.derivative};
}

__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

}  // namespace longhaul::gpu
