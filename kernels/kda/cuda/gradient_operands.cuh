// What a chunk's gradients are formed from (gradients.cuh): the operands of products between tiles, which carry their decay, and
// what is fetched as it is.
#pragma once

#include "kernels/kda/cuda/gradient_factors.cuh"

namespace longhaul::kda::cuda {

// dO into its panel, in the background; rows beyond the chunk become zeros.
template <int D>
__device__ __forceinline__ void fetch_outputs(const GradientParams& p, const ChunkEntry& chunk, int head, uint32_t base, int thread) {
  using S = GradientShared<D>;
  constexpr int pieces = D / 8;
  const Panel to{base + S::kOutputs, kChunk};
  const int column = thread % pieces * 8;
  const uint16_t* from = p.d_o + chunk.first_token * p.d_o_stride + head * D + column;
#pragma unroll
  for (int i = 0; i < kChunk * pieces / S::kThreads; ++i) {
    const int row = thread / pieces + i * (S::kThreads / pieces);
    copy_16(to.at(row, column), from + (row < chunk.rows ? row * p.d_o_stride : 0), row >= chunk.rows);
  }
}

// What the walks left of a chunk and head; one thread.
template <int D>
__device__ __forceinline__ void fetch_states(const GradientParams& p, int64_t item, uint32_t base) {
  using S = GradientShared<D>;
  constexpr uint32_t state_bytes = panel_bytes(D, D);
  constexpr uint32_t row_bytes = panel_bytes(kChunk, D);
  const uint32_t barrier = base + S::kBarrier;
  mbarrier_arrive_expect(barrier, 2 * state_bytes + 2 * row_bytes);
  bulk_load(base + S::kResiduals, p.residuals + item * row_bytes, row_bytes, barrier);
  bulk_load(base + S::kResidualGradients, p.residual_gradients + item * row_bytes, row_bytes, barrier);
  bulk_load(base + S::kStates, p.states + item * state_bytes, state_bytes, barrier);
  bulk_load(base + S::kStateGradients, p.state_gradients + item * state_bytes, state_bytes, barrier);
}

// Operands of the tiles and the decays, from q, k and g; by all threads, two channels and eight rows each.
template <int D>
__device__ __forceinline__ void form_operands(const GradientParams& p, const ChunkEntry& chunk, int head, const Factors<D>& factors,
                                              unsigned char* shared, int thread) {
  using S = GradientShared<D>;
  constexpr int rows = S::kGroupRows;
  const int channel = thread % (D / 2) * 2;
  const int group = thread / (D / 2);
  const int at_channel = head * D + channel;
  const uint16_t* q_at = p.in.q + chunk.first_token * p.in.q_stride + at_channel;
  const uint16_t* k_at = p.in.k + chunk.first_token * p.in.k_stride + at_channel;
  const float* g_at = p.in.g + chunk.first_token * p.in.g_stride + at_channel;
  uint32_t q[rows];
  uint32_t k[rows];
  float2 f[rows];
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const int row = min(group * rows + r, chunk.rows - 1);
    f[r] = *reinterpret_cast<const float2*>(g_at + row * p.in.g_stride);
    q[r] = *reinterpret_cast<const uint32_t*>(q_at + row * p.in.q_stride);
    k[r] = *reinterpret_cast<const uint32_t*>(k_at + row * p.in.k_stride);
  }
  if (thread < kChunk) {
    const float beta = thread < chunk.rows ? p.in.beta[(chunk.first_token + thread) * p.in.heads + head] : 0.0F;
    reinterpret_cast<float*>(shared + S::kBeta)[thread] = beta;
  }
  if (chunk.rows < kChunk) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const bool inside = group * rows + r < chunk.rows;
      q[r] = inside ? q[r] : 0U;
      k[r] = inside ? k[r] : 0U;
      f[r].x = inside ? f[r].x : 0.0F;
      f[r].y = inside ? f[r].y : 0.0F;
    }
  }
  // first: of the group's first row; f: from there.
  const float2 first = make_float2(kLog2E * f[0].x, kLog2E * f[0].y);
  f[0] = make_float2(0.0F, 0.0F);
#pragma unroll
  for (int r = 1; r < rows; ++r) {
    f[r].x = f[r - 1].x + kLog2E * f[r].x;
    f[r].y = f[r - 1].y + kLog2E * f[r].y;
  }
  auto* logs = reinterpret_cast<float*>(shared + S::kLogs) + channel;
  *reinterpret_cast<float2*>(logs + 2 * group * D) = first;
  *reinterpret_cast<float2*>(logs + (2 * group + 1) * D) = f[rows - 1];
  factors.compare(shared, thread);
  sync_block();
  factors.write(shared, thread);
  const auto log_at = [&](int g, int what) { return *reinterpret_cast<const float2*>(logs + (2 * g + what) * D); };
  float2 before = make_float2(0.0F, 0.0F);
  if (group % 2 == 1) {
    const float2 rest = log_at(group - 1, 1);
    before = make_float2(rest.x + first.x, rest.y + first.y);
  }
  if (group < kTiles) {
    // `group` as a tile.
    float2 step = log_at(2 * group, 0);
    float2 end = make_float2(kMiddle, kMiddle);
#pragma unroll
    for (int g = 0; g < S::kGroups; ++g) {
      const float2 a = log_at(g, 0);
      const float2 b = log_at(g, 1);
      const bool in_tile_before = g / 2 == group - 1;
      const bool is_first = g % 2 == 0;
      step.x += in_tile_before ? b.x + (is_first ? 0.0F : a.x) : 0.0F;
      step.y += in_tile_before ? b.y + (is_first ? 0.0F : a.y) : 0.0F;
      const bool is_after = g / 2 >= group;
      end.x += is_after ? b.x + (g == 2 * group ? 0.0F : a.x) : 0.0F;
      end.y += is_after ? b.y + (g == 2 * group ? 0.0F : a.y) : 0.0F;
    }
    *reinterpret_cast<float2*>(shared + S::kSteps + (group * D + channel) * 4) = make_float2(exp2_fast(step.x), exp2_fast(step.y));
    *reinterpret_cast<float2*>(shared + S::kEnds + (group * D + channel) * 4) = make_float2(exp2_fast(end.x), exp2_fast(end.y));
  }
  const auto* beta = reinterpret_cast<const float*>(shared + S::kBeta);
  const float scale_up = kUp * p.in.scale;
  // Rows of a group share nothing but their slab: the swizzle permutes them.
  const uint32_t at_panel = panel_offset(group * rows, channel, kChunk);
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const int row = group * rows + r;
    const float decay[2] = {exp2_fast(before.x + f[r].x), exp2_fast(before.y + f[r].y)};
    const float inverse[2] = {exp2_fast(-kMiddle - before.x - f[r].x), exp2_fast(-kMiddle - before.y - f[r].y)};
    const uint32_t at = (at_panel ^ static_cast<uint32_t>(r * 16)) + static_cast<uint32_t>(r * kSlabRowBytes);
    const float of_beta = kUp * beta[row];
    *reinterpret_cast<float2*>(shared + S::kDecays + row * S::kDecayRow + channel * 4) = make_float2(decay[0], decay[1]);
    *reinterpret_cast<uint32_t*>(shared + S::kColumns + at) = pack_bf16(bf16_low(k[r]) * inverse[0], bf16_high(k[r]) * inverse[1]);
    *reinterpret_cast<uint32_t*>(shared + S::kQueries + at) =
        pack_bf16(bf16_low(q[r]) * (scale_up * decay[0]), bf16_high(q[r]) * (scale_up * decay[1]));
    *reinterpret_cast<uint32_t*>(shared + S::kKeys + at) =
        pack_bf16(bf16_low(k[r]) * (of_beta * decay[0]), bf16_high(k[r]) * (of_beta * decay[1]));
  }
}

// Lines of a chunk's inputs into the second-level cache, for the block's next turn.
template <int D>
__device__ __forceinline__ void prefetch_inputs(const GradientParams& p, const ChunkEntry& chunk, int head, int thread) {
  using S = GradientShared<D>;
  constexpr int lines = D / 64;  // of 128 bytes, in a row of 16-bit values
  constexpr int row_lines = 6 * lines;
  for (int i = thread; i < kChunk * row_lines; i += S::kThreads) {
    const int64_t token = chunk.first_token + min(i / row_lines, chunk.rows - 1);
    const int which = i % row_lines / lines;
    const int column = head * D + i % lines * 64;
    const void* at = p.in.q + token * p.in.q_stride + column;
    at = which == 1 ? p.in.k + token * p.in.k_stride + column : at;
    at = which == 2 ? p.v + token * p.v_stride + column : at;
    at = which == 3 ? p.d_o + token * p.d_o_stride + column : at;
    at = which == 4 ? p.in.g + token * p.in.g_stride + column : at;
    at = which == 5 ? p.in.g + token * p.in.g_stride + column + 32 : at;
    prefetch_line(at);
  }
}

}  // namespace longhaul::kda::cuda
