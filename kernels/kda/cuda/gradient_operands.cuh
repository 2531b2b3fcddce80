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

// One step of sums over lanes that differ in the bit `mask`: x[i] and x[i + kCount / 2] of both, the first half of the sums for
// the lower lane, the second for the upper one.
template <int kCount, int kSize>
__device__ __forceinline__ void fold(float (&x)[kSize], int lane, int mask) {
  const bool upper = (lane & mask) != 0;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const float other = shuffle_xor(upper ? x[i] : x[i + kCount / 2], mask);
    x[i] = (upper ? x[i + kCount / 2] : x[i]) + other;
  }
}

// Sums of squares of eight rows of q, then of k, of which each lane has two channels: lane l of the warp gets that of l / 2.
__device__ __forceinline__ float sum_squares(const uint32_t (&q)[8], const uint32_t (&k)[8], int lane) {
  float x[16];
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    x[r] = bf16_low(q[r]) * bf16_low(q[r]) + bf16_high(q[r]) * bf16_high(q[r]);
    x[8 + r] = bf16_low(k[r]) * bf16_low(k[r]) + bf16_high(k[r]) * bf16_high(k[r]);
  }
  fold<16>(x, lane, 16);
  fold<8>(x, lane, 8);
  fold<4>(x, lane, 4);
  fold<2>(x, lane, 2);
  return x[0] + shuffle_xor(x[0], 1);
}

// Of raw inputs: g = bound * sigmoid(e^{a_log} (logit + bias)), for two channels.
template <int D>
struct Gate {
  float slope;  // -log2(e) e^{a_log}
  float bias[2];

  __device__ __forceinline__ Gate(const InputParams& p, int head, int channel)
      : slope(-kLog2E * (p.a_log != nullptr ? exp2_fast(kLog2E * p.a_log[head]) : 1.0F)), bias{} {
    if (p.dt_bias != nullptr) {
      const float2 b = *reinterpret_cast<const float2*>(p.dt_bias + static_cast<int64_t>(head) * D + channel);
      bias[0] = b.x;
      bias[1] = b.y;
    }
  }
  [[nodiscard]] __device__ __forceinline__ float sigmoid(float logit, int i) const {
    return reciprocal_fast(1.0F + exp2_fast(slope * (logit + bias[i])));
  }
};

// q, k and the logarithm of the decay to the base 2 of two channels and eight rows, zeros beyond the chunk.
template <int D, Inputs kInputs>
struct OperandInputs {
  using S = GradientShared<D>;
  static constexpr int kRows = S::kGroupRows;
  uint32_t q[kRows];
  uint32_t k[kRows];
  float2 f[kRows];

  __device__ __forceinline__ void fetch(const GradientParams& p, const ChunkEntry& chunk, int head, int channel, int first_row) {
    uint32_t z[kRows];
    // Of a whole chunk all rows are one stride apart, which saves most of the arithmetic on addresses.
    if (chunk.rows == kChunk) {
      load<true>(z, p, chunk, head * D + channel, first_row);
    } else {
      load<false>(z, p, chunk, head * D + channel, first_row);
    }
    if constexpr (kInputs == Inputs::Raw) {
      const Gate<D> gate(p.in, head, channel);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        f[r] = make_float2(p.in.gate_bound * gate.sigmoid(bf16_low(z[r]), 0), p.in.gate_bound * gate.sigmoid(bf16_high(z[r]), 1));
      }
    }
    if (chunk.rows < kChunk) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const bool inside = first_row + r < chunk.rows;
        q[r] = inside ? q[r] : 0U;
        k[r] = inside ? k[r] : 0U;
        f[r].x = inside ? f[r].x : 0.0F;
        f[r].y = inside ? f[r].y : 0.0F;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      f[r] = make_float2(kLog2E * f[r].x, kLog2E * f[r].y);
    }
  }

 private:
  template <bool kWhole>
  __device__ __forceinline__ void load(uint32_t (&z)[kRows], const GradientParams& p, const ChunkEntry& chunk, int at_channel,
                                       int first_row) {
    const int first = kWhole ? first_row : min(first_row, chunk.rows - 1);
    const int last = kWhole ? kRows - 1 : chunk.rows - 1 - first;
    const int64_t token = chunk.first_token + first;
    const uint16_t* q_at = p.in.q + token * p.in.q_stride + at_channel;
    const uint16_t* k_at = p.in.k + token * p.in.k_stride + at_channel;
    const float* g_at = p.in.g + token * p.in.g_stride + at_channel;
    const uint16_t* z_at = p.in.gate + token * p.in.g_stride + at_channel;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = kWhole ? r : min(r, last);
      if constexpr (kInputs == Inputs::Ready) {
        f[r] = *reinterpret_cast<const float2*>(g_at + row * p.in.g_stride);
      } else {
        z[r] = *reinterpret_cast<const uint32_t*>(z_at + row * p.in.g_stride);
      }
      q[r] = *reinterpret_cast<const uint32_t*>(q_at + row * p.in.q_stride);
      k[r] = *reinterpret_cast<const uint32_t*>(k_at + row * p.in.k_stride);
    }
  }
};

template <int D, Inputs kInputs>
[[nodiscard]] __device__ __forceinline__ float fetch_chunk_beta(const GradientParams& p, const ChunkEntry& chunk, int head, int row) {
  if (row >= chunk.rows) {
    return 0.0F;
  }
  const int64_t at = (chunk.first_token + row) * p.in.heads + head;
  return kInputs == Inputs::Ready ? p.in.beta[at] : sigmoid_fast(bf16_low(p.in.beta_logits[at]));
}

// Decays to the first row of each tile from that of the tile before (or the chunk's start), and from there to the chunk's end,
// from the logarithms of groups of rows; the thread's two channels of the tile `tile`.
template <int D>
__device__ __forceinline__ void write_tile_decay(unsigned char* shared, float middle, int tile, int channel) {
  using S = GradientShared<D>;
  const float* logs = reinterpret_cast<const float*>(shared + S::kLogs) + channel;
  const auto log_at = [&](int g, int what) { return *reinterpret_cast<const float2*>(logs + (2 * g + what) * D); };
  float2 step = log_at(2 * tile, 0);
  float2 end = make_float2(middle, middle);
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
    const float2 a = log_at(g, 0);
    const float2 b = log_at(g, 1);
    const bool in_tile_before = g / 2 == tile - 1;
    const bool is_first = g % 2 == 0;
    step.x += in_tile_before ? b.x + (is_first ? 0.0F : a.x) : 0.0F;
    step.y += in_tile_before ? b.y + (is_first ? 0.0F : a.y) : 0.0F;
    const bool is_after = g / 2 >= tile;
    end.x += is_after ? b.x + (g == 2 * tile ? 0.0F : a.x) : 0.0F;
    end.y += is_after ? b.y + (g == 2 * tile ? 0.0F : a.y) : 0.0F;
  }
  *reinterpret_cast<float2*>(shared + S::kSteps + (tile * D + channel) * 4) = make_float2(exp2_fast(step.x), exp2_fast(step.y));
  *reinterpret_cast<float2*>(shared + S::kEnds + (tile * D + channel) * 4) = make_float2(exp2_fast(end.x), exp2_fast(end.y));
}

// The norms of q and k from their sums of squares, of all rows to shared memory, and of the thread's eight rows.
template <int D>
__device__ __forceinline__ void read_norms(float (&q_norm)[8], float (&k_norm)[8], unsigned char* shared, int first_row, int thread) {
  using S = GradientShared<D>;
  constexpr float kNormEpsilon = 1e-6F;
  const auto* squares = reinterpret_cast<const float*>(shared + S::kSquares);
  const auto norm_at = [&](int i) {
    float square = kNormEpsilon;
#pragma unroll
    for (int part = 0; part < D / 64; ++part) {
      square += squares[part * 2 * kChunk + i];
    }
    return rsqrt_fast(square);
  };
  if (thread < 2 * kChunk) {
    reinterpret_cast<float*>(shared + S::kNorms)[thread] = norm_at(thread);
  }
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    q_norm[r] = norm_at(first_row + r);
    k_norm[r] = norm_at(kChunk + first_row + r);
  }
}

// The operands of a thread's rows, which are one after another from `first_row` on; `before` is the logarithm of the decay from
// the tile's first row to them.
template <int D, Inputs kInputs, Format kFormat>
__device__ __forceinline__ void write_operands(const OperandInputs<D, kInputs>& in, float2 before, float scale, unsigned char* shared,
                                               int first_row, int channel, int thread) {
  using S = GradientShared<D>;
  using T = TileFormat<kFormat>;
  constexpr int rows = S::kGroupRows;
  float q_norm[rows];
  float k_norm[rows];
  if constexpr (kInputs == Inputs::Raw) {
    read_norms<D>(q_norm, k_norm, shared, first_row, thread);
  }
  const auto* beta = reinterpret_cast<const float*>(shared + S::kBeta) + first_row;
  const float scale_up = T::kUp * scale;
  // Rows of a group share nothing but their slab: the swizzle permutes them.
  const uint32_t at_panel = panel_offset(first_row, channel, kChunk);
  unsigned char* decays = shared + S::kDecays + first_row * S::kDecayRow + channel * 4;
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const float log[2] = {before.x + in.f[r].x, before.y + in.f[r].y};
    const float decay[2] = {exp2_fast(log[0]), exp2_fast(log[1])};
    const float inverse[2] = {exp2_fast(-T::kMiddle - log[0]), exp2_fast(-T::kMiddle - log[1])};
    unsigned char* at = shared + ((at_panel ^ static_cast<uint32_t>(r * 16)) + static_cast<uint32_t>(r * kSlabRowBytes));
    float k[2] = {bf16_low(in.k[r]), bf16_high(in.k[r])};
    float of_scale = scale_up;
    if constexpr (kInputs == Inputs::Raw) {
      k[0] *= k_norm[r];
      k[1] *= k_norm[r];
      of_scale *= q_norm[r];
    }
    const float of_beta = T::kUp * beta[r];
    *reinterpret_cast<float2*>(decays + r * S::kDecayRow) = make_float2(decay[0], decay[1]);
    *reinterpret_cast<uint32_t*>(at + S::kColumns) = pack<kFormat>(k[0] * inverse[0], k[1] * inverse[1]);
    *reinterpret_cast<uint32_t*>(at + S::kQueries) =
        pack<kFormat>(bf16_low(in.q[r]) * (of_scale * decay[0]), bf16_high(in.q[r]) * (of_scale * decay[1]));
    *reinterpret_cast<uint32_t*>(at + S::kKeys) = pack<kFormat>(k[0] * (of_beta * decay[0]), k[1] * (of_beta * decay[1]));
  }
}

// Operands of the tiles and the decays, from q, k and g; by all threads, two channels and eight rows each. Returns whether the
// chunk decays so much that they are in bf16; `turn` counts the block's chunks.
template <int D, Inputs kInputs>
[[nodiscard]] __device__ __forceinline__ bool form_operands(const GradientParams& p, const ChunkEntry& chunk, int head,
                                                            const Factors<D>& factors, unsigned char* shared, uint32_t turn, int thread) {
  using S = GradientShared<D>;
  constexpr int rows = S::kGroupRows;
  const int channel = thread % (D / 2) * 2;
  const int group = thread / (D / 2);
  OperandInputs<D, kInputs> in;
  in.fetch(p, chunk, head, channel, group * rows);
  if (thread < kChunk) {
    reinterpret_cast<float*>(shared + S::kBeta)[thread] = fetch_chunk_beta<D, kInputs>(p, chunk, head, thread);
  }
  if constexpr (kInputs == Inputs::Raw) {
    const float square = sum_squares(in.q, in.k, thread % 32);
    if (thread % 2 == 0) {
      const int which = thread % 32 / 2;
      reinterpret_cast<float*>(shared + S::kSquares)[(channel / 64 * 2 + which / 8) * kChunk + group * rows + which % 8] = square;
    }
  }
  // first: of the group's first row; f: from there.
  auto& f = in.f;
  const float2 first = f[0];
  f[0] = make_float2(0.0F, 0.0F);
#pragma unroll
  for (int r = 1; r < rows; ++r) {
    f[r].x += f[r - 1].x;
    f[r].y += f[r - 1].y;
  }
  auto* logs = reinterpret_cast<float*>(shared + S::kLogs) + channel;
  *reinterpret_cast<float2*>(logs + 2 * group * D) = first;
  *reinterpret_cast<float2*>(logs + (2 * group + 1) * D) = f[rows - 1];
  auto* strong = reinterpret_cast<int32_t*>(shared + S::kStrong);
  if (any_lane(min(first.x + f[rows - 1].x, first.y + f[rows - 1].y) < kStrongGroup) && thread % 32 == 0) {
    strong[turn % 2] = 1;
  }
  factors.share(shared, thread);
  sync_block();
  const bool is_strong = strong[turn % 2] != 0;
  if (thread == 0) {
    // All have read it a turn ago.
    strong[(turn + 1) % 2] = 0;
  }
  float2 before = make_float2(0.0F, 0.0F);
  if (group % 2 == 1) {
    const float2 rest = *reinterpret_cast<const float2*>(logs + (2 * group - 1) * D);
    before = make_float2(rest.x + first.x, rest.y + first.y);
  }
  if (group < kTiles) {
    write_tile_decay<D>(shared, is_strong ? TileFormat<Format::Bf16>::kMiddle : TileFormat<Format::F16>::kMiddle, group, channel);
  }
  if (is_strong) {
    write_operands<D, kInputs, Format::Bf16>(in, before, p.in.scale, shared, group * rows, channel, thread);
  } else {
    write_operands<D, kInputs, Format::F16>(in, before, p.in.scale, shared, group * rows, channel, thread);
  }
  return is_strong;
}

// Lines of a chunk's inputs into the second-level cache, for the block's next turn.
template <int D, Inputs kInputs>
__device__ __forceinline__ void prefetch_inputs(const GradientParams& p, const ChunkEntry& chunk, int head, int thread) {
  using S = GradientShared<D>;
  constexpr int lines = D / 64;  // of 128 bytes, in a row of 16-bit values
  constexpr int row_lines = (kInputs == Inputs::Ready ? 6 : 5) * lines;
  for (int i = thread; i < kChunk * row_lines; i += S::kThreads) {
    const int64_t token = chunk.first_token + min(i / row_lines, chunk.rows - 1);
    const int which = i % row_lines / lines;
    const int column = head * D + i % lines * 64;
    const void* at = p.in.q + token * p.in.q_stride + column;
    at = which == 1 ? p.in.k + token * p.in.k_stride + column : at;
    at = which == 2 ? p.v + token * p.v_stride + column : at;
    at = which == 3 ? p.d_o + token * p.d_o_stride + column : at;
    if constexpr (kInputs == Inputs::Ready) {
      at = which == 4 ? p.in.g + token * p.in.g_stride + column : at;
      at = which == 5 ? p.in.g + token * p.in.g_stride + column + 32 : at;
    } else {
      at = which == 4 ? p.in.gate + token * p.in.g_stride + column : at;
    }
    prefetch_line(at);
  }
}

}  // namespace longhaul::kda::cuda
