// Gradients of the gate's parameters, which all tokens share: sums of what the gradients left for each chunk and head, in an order
// that depends on the number of chunks alone.
#pragma once

#include "kernels/kda/cuda/layout.cuh"

namespace longhaul::kda::cuda {

struct GateSumParams {
  Tables tables;
  int documents;
  int heads;
  const float* bias_gradients;   // [chunks, heads, K]
  const float* slope_gradients;  // [chunks, heads]
  float* da_log;                 // [heads] or absent
  float* ddt_bias;               // [heads, K] or absent
};

inline constexpr int kGateSumThreads = 1024;

// One block a head and 32 channels, of which each warp adds every 32nd chunk; lane 0 of the warps of a head's first block adds
// the slopes too.
template <int K>
__global__ void __launch_bounds__(kGateSumThreads) gate_sums_kernel(const GateSumParams p) {
  constexpr int parts = K / 32;
  constexpr int warps = kGateSumThreads / 32;
  const int part = block_index() % parts;
  const int head = block_index() / parts;
  const int lane = thread_index() % 32;
  const int warp = thread_index() / 32;
  const int chunks = p.tables.document_chunks[p.documents];
  auto* sums = reinterpret_cast<float*>(dynamic_shared());  // [warps, 33]
  float bias = 0.0F;
  float slope = 0.0F;
#pragma unroll 4
  for (int chunk = warp; chunk < chunks; chunk += warps) {
    const int64_t item = static_cast<int64_t>(chunk) * p.heads + head;
    bias += p.bias_gradients[item * K + part * 32 + lane];
    if (part == 0 && lane == 0) {
      slope += p.slope_gradients[item];
    }
  }
  sums[warp * 33 + lane] = bias;
  if (lane == 0) {
    sums[warp * 33 + 32] = slope;
  }
  sync_block();
  if (thread_index() > 32) {
    return;
  }
  float sum = 0.0F;
#pragma unroll
  for (int w = 0; w < warps; ++w) {
    sum += sums[w * 33 + thread_index()];
  }
  if (thread_index() < 32) {
    if (p.ddt_bias != nullptr) {
      p.ddt_bias[static_cast<int64_t>(head) * K + part * 32 + lane] = sum;
    }
  } else if (part == 0 && p.da_log != nullptr) {
    p.da_log[head] = sum;
  }
}

[[nodiscard]] constexpr int64_t gate_sums_shared_bytes() { return (kGateSumThreads / 32) * 33 * 4; }

}  // namespace longhaul::kda::cuda
