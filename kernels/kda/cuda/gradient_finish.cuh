// From the products of a chunk to its gradients (gradients.cuh).
#pragma once

#include "kernels/kda/cuda/gradient_operands.cuh"
#include "kernels/kda/cuda/gradient_tiles.cuh"

namespace longhaul::kda::cuda {

// q and k of a thread's place, bf16 pairs: [4 half + n].
struct PlaceInputs {
  uint32_t q[8];
  uint32_t k[8];

  template <int D>
  __device__ __forceinline__ void fetch(const GradientParams& p, const ChunkEntry& chunk, int head, const TilePlace& at) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t token = chunk.first_token + min(at.row(half), chunk.rows - 1);
      const uint16_t* q_at = p.in.q + token * p.in.q_stride + head * D + at.channel;
      const uint16_t* k_at = p.in.k + token * p.in.k_stride + head * D + at.channel;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        q[4 * half + n] = *reinterpret_cast<const uint32_t*>(q_at + 8 * n);
        k[4 * half + n] = *reinterpret_cast<const uint32_t*>(k_at + 8 * n);
      }
    }
  }
};

// e^{G_C} rowsum(S dS') times `unit`, from the parts that sum_states left; a thread a channel.
template <int D>
__device__ __forceinline__ void finish_state_sum(unsigned char* shared, float unit, int thread) {
  using S = GradientShared<D>;
  if (thread < D) {
    const auto* inner = reinterpret_cast<const float*>(shared + S::kInner) + thread;
    const float decay = reinterpret_cast<const float*>(shared + S::kEnds)[thread] *
                        reinterpret_cast<const float*>(shared + S::kSteps)[thread];
    reinterpret_cast<float*>(shared + S::kStateSum)[thread] = (inner[0] + inner[D]) * (decay * unit);
  }
}

// dq, dk and the parts of dbeta from the products, in place of acc_q and acc_k: with raw inputs of the normalised q and k, with
// parts of their products with them. What dg sums over rows, (scale q_i row_q_i + k_i (beta_i row_k_i - col_i)) - k_i out_i, goes to
// kDecays, with sums over groups of eight rows; k_i out_i, which belongs to later rows only, is added as a whole, and taken away
// from each row on. `back` takes products of scores and states to the true values, `unit` those with gradients of states.
template <int D, Inputs kInputs, Format kFormat>
__device__ __forceinline__ void finish_rows(float (&acc_q)[16], float (&acc_k)[16], const float (&col)[16], const float (&out)[16],
                                            const PlaceInputs& in, const GradientParams& p, float back, float unit, int rows,
                                            unsigned char* shared, const TilePlace& at) {
  using S = GradientShared<D>;
  using T = TileFormat<kFormat>;
  const auto low = [](uint32_t pair) { return kFormat == Format::F16 ? f16_low(pair) : bf16_low(pair); };
  const auto high = [](uint32_t pair) { return kFormat == Format::F16 ? f16_high(pair) : bf16_high(pair); };
  const auto* norms = reinterpret_cast<const float*>(shared + S::kNorms);
  float sums[16];    // of two rows' dg: [8 half + 2 n + j]
  float leaving[8];  // of k out: [2 n + j]
  float betas[2] = {};
  float of_q[2] = {};
  float of_k[2] = {};
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int channel = at.channel + 8 * n;
    const float2 end = *reinterpret_cast<const float2*>(shared + S::kEnds + (at.tile * D + channel) * 4);
    leaving[2 * n] = 0.0F;
    leaving[2 * n + 1] = 0.0F;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = at.row(half);
      const float beta = reinterpret_cast<const float*>(shared + S::kBeta)[row];
      const float diagonal = reinterpret_cast<const float*>(shared + S::kDiagonal)[row];
      auto* decays = reinterpret_cast<float2*>(shared + S::kDecays + row * S::kDecayRow + channel * 4);
      const float2 f = *decays;
      const uint32_t at_panel = panel_offset(row, channel, kChunk);
      // As the products had them, so that a pair's two halves cancel where both are in a sum of dg.
      const uint32_t rounded[3] = {*reinterpret_cast<const uint32_t*>(shared + S::kQueries + at_panel),
                                   *reinterpret_cast<const uint32_t*>(shared + S::kKeys + at_panel),
                                   *reinterpret_cast<const uint32_t*>(shared + S::kColumns + at_panel)};
      const uint32_t q = in.q[4 * half + n];
      const uint32_t k = in.k[4 * half + n];
      float of_dg[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int i = 4 * n + 2 * half + j;
        const float up = T::kUp * (j == 0 ? f.x : f.y);
        const float down = reciprocal_fast(up);
        float query = j == 0 ? bf16_low(q) : bf16_high(q);
        float key = j == 0 ? bf16_low(k) : bf16_high(k);
        if constexpr (kInputs == Inputs::Raw) {
          query *= norms[row];
          key *= norms[kChunk + row];
        }
        const auto operand = [&](int which) { return j == 0 ? low(rounded[which]) : high(rounded[which]); };
        const float grown = operand(0) * acc_q[i] + (operand(1) * acc_k[i] - operand(2) * col[i]);
        const float row_k = (up * back) * acc_k[i];
        const float out_k = down * (j == 0 ? end.x : end.y) * (unit * out[i]);
        const float dq = p.in.scale * (up * acc_q[i] + diagonal * key) * back;
        const float dk = beta * row_k + (down * col[i] + p.in.scale * diagonal * query) * back + out_k;
        betas[half] += key * row_k;
        of_dg[j] = row < rows ? back * grown - key * out_k : 0.0F;
        leaving[2 * n + j] += row < rows ? key * out_k : 0.0F;
        if constexpr (kInputs == Inputs::Raw) {
          of_q[half] += query * dq;
          of_k[half] += key * dk;
        }
        acc_q[i] = dq;
        acc_k[i] = dk;
        sums[8 * half + 2 * n + j] = of_dg[j];
      }
      *decays = make_float2(of_dg[0], of_dg[1]);
    }
  }
  // Over rows: lane bits 4 to 2 are rows, and become which half, n / 2 and n % 2.
  const int lane = at.lane;
  fold<16>(sums, lane, 16);
  fold<8>(sums, lane, 8);
  fold<4>(sums, lane, 4);
  const int n = lane / 4 % 4;
  const int first_channel = at.part * 32 + 8 * n + lane % 4 * 2;
  *reinterpret_cast<float2*>(shared + S::kSums + ((2 * at.tile + lane / 16) * D + first_channel) * 4) = make_float2(sums[0], sums[1]);
  fold<8>(leaving, lane, 8);
  fold<4>(leaving, lane, 4);
  leaving[0] += shuffle_xor(leaving[0], 16);
  leaving[1] += shuffle_xor(leaving[1], 16);
  if (lane < 16) {
    *reinterpret_cast<float2*>(shared + S::kLeavingSums + (at.tile * D + first_channel) * 4) = make_float2(leaving[0], leaving[1]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float x[3] = {betas[half], of_q[half], of_k[half]};
#pragma unroll
    for (int i = 0; i < (kInputs == Inputs::Raw ? 3 : 1); ++i) {
      x[i] += shuffle_xor(x[i], 1);
      x[i] += shuffle_xor(x[i], 2);
    }
    if (lane % 4 == 0) {
      const int row = at.row(half);
      reinterpret_cast<float*>(shared + S::kBetaSums)[(1 + at.part) * kChunk + row] = x[0];
      if constexpr (kInputs == Inputs::Raw) {
        auto* dots = reinterpret_cast<float*>(shared + S::kDots);
        dots[at.part * kChunk + row] = x[1];
        dots[(S::kParts + at.part) * kChunk + row] = x[2];
      }
    }
  }
}

// dq and dk as they are, in fp32.
template <int D>
__device__ __forceinline__ void store_rows(const float (&dq)[16], const float (&dk)[16], const GradientParams& p, const ChunkEntry& chunk,
                                           int head, const TilePlace& at) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (at.row(half) < chunk.rows) {
      const int64_t to = ((chunk.first_token + at.row(half)) * p.in.heads + head) * D + at.channel;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int i = 4 * n + 2 * half;
        *reinterpret_cast<float2*>(static_cast<float*>(p.dq) + to + 8 * n) = make_float2(dq[i], dq[i + 1]);
        *reinterpret_cast<float2*>(static_cast<float*>(p.dk) + to + 8 * n) = make_float2(dk[i], dk[i + 1]);
      }
    }
  }
}

// Through the norms, dx = (dy - y <y, dy>) / norm, in bf16 to where the operands were.
template <int D>
__device__ __forceinline__ void stage_rows(float (&dq)[16], float (&dk)[16], const PlaceInputs& in, unsigned char* shared, uint32_t base,
                                           const TilePlace& at) {
  using S = GradientShared<D>;
  const auto* norms = reinterpret_cast<const float*>(shared + S::kNorms);
  const auto* dots = reinterpret_cast<const float*>(shared + S::kDots);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = at.row(half);
    float along[2] = {};
#pragma unroll
    for (int part = 0; part < S::kParts; ++part) {
      along[0] += dots[part * kChunk + row];
      along[1] += dots[(S::kParts + part) * kChunk + row];
    }
    const float norm[2] = {norms[row], norms[kChunk + row]};
    along[0] *= norm[0] * norm[0];
    along[1] *= norm[1] * norm[1];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int i = 4 * n + 2 * half;
      const uint32_t q = in.q[4 * half + n];
      const uint32_t k = in.k[4 * half + n];
      dq[i] = norm[0] * dq[i] - along[0] * bf16_low(q);
      dq[i + 1] = norm[0] * dq[i + 1] - along[0] * bf16_high(q);
      dk[i] = norm[1] * dk[i] - along[1] * bf16_low(k);
      dk[i + 1] = norm[1] * dk[i + 1] - along[1] * bf16_high(k);
    }
  }
  const Panel queries{base + S::kQueries, kChunk};
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const uint32_t to = queries.at(at.tile * kTile + at.lane % 16, at.part * 32 + 16 * m + at.lane / 16 * 8);
    uint32_t tiles[4];
    round_to_a<Format::Bf16>(tiles, dq + 8 * m, dq + 8 * m + 4);
    stmatrix(to, tiles);
    round_to_a<Format::Bf16>(tiles, dk + 8 * m, dk + 8 * m + 4);
    stmatrix(to + (S::kKeys - S::kQueries), tiles);
  }
}

// What stage_rows left, to memory by whole rows.
template <int D>
__device__ __forceinline__ void copy_rows(const GradientParams& p, const ChunkEntry& chunk, int head, const unsigned char* shared, int thread) {
  using S = GradientShared<D>;
  constexpr int pieces = D / 8;
  const int column = thread % pieces * 8;
#pragma unroll
  for (int i = 0; i < kChunk * pieces / S::kThreads; ++i) {
    const int row = thread / pieces + i * (S::kThreads / pieces);
    if (row < chunk.rows) {
      const uint32_t at = panel_offset(row, column, kChunk);
      const int64_t to = ((chunk.first_token + row) * p.in.heads + head) * D + column;
      *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.dq) + to) = *reinterpret_cast<const uint4*>(shared + S::kQueries + at);
      *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.dk) + to) = *reinterpret_cast<const uint4*>(shared + S::kKeys + at);
    }
  }
}

// dg, or the gradient of the gate's logits, from sums over the rows from each one on; two channels and eight rows a thread.
template <int D, Inputs kInputs>
struct GateGradients {
  using S = GradientShared<D>;
  static constexpr int kRows = S::kGroupRows;
  int channel;
  int group;
  uint32_t logits[kRows];

  explicit __device__ __forceinline__ GateGradients(int thread) : channel(thread % (D / 2) * 2), group(thread / (D / 2)) {}

  // Early.
  __device__ __forceinline__ void fetch(const GradientParams& p, const ChunkEntry& chunk, int head) {
    if constexpr (kInputs == Inputs::Raw) {
      const uint16_t* from = p.in.gate + chunk.first_token * p.in.g_stride + head * D + channel;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int64_t row = min(group * kRows + r, chunk.rows - 1);
        logits[r] = *reinterpret_cast<const uint32_t*>(from + row * p.in.g_stride);
      }
    }
  }

  __device__ __forceinline__ void write(const GradientParams& p, const ChunkEntry& chunk, int head, unsigned char* shared, int thread) {
    float2 sum = *reinterpret_cast<const float2*>(shared + S::kStateSum + channel * 4);
    const auto add = [&](int at) {
      const float2 x = *reinterpret_cast<const float2*>(shared + at + channel * 4);
      sum.x += x.x;
      sum.y += x.y;
    };
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      add(S::kLeavingSums + tile * D * 4);
    }
#pragma unroll
    for (int later = S::kGroups - 1; later > 0; --later) {
      if (later > group) {
        add(S::kSums + later * D * 4);
      }
    }
    const Gate<D> gate(p.in, head, channel);
    const float slope = p.in.gate_bound * (gate.slope * (-1.0F / kLog2E));
    float2 of_bias = make_float2(0.0F, 0.0F);
    float of_slope = 0.0F;
    const int64_t to = ((chunk.first_token + group * kRows) * p.in.heads + head) * D + channel;
#pragma unroll
    for (int r = kRows - 1; r >= 0; --r) {
      const int row = group * kRows + r;
      const float2 x = *reinterpret_cast<const float2*>(shared + S::kDecays + row * S::kDecayRow + channel * 4);
      sum.x += x.x;
      sum.y += x.y;
      if (row < chunk.rows) {
        const int64_t at = to + static_cast<int64_t>(r) * p.in.heads * D;
        if constexpr (kInputs == Inputs::Ready) {
          *reinterpret_cast<float2*>(static_cast<float*>(p.dg) + at) = sum;
        } else {
          const float logit[2] = {bf16_low(logits[r]), bf16_high(logits[r])};
          const float open[2] = {gate.sigmoid(logit[0], 0), gate.sigmoid(logit[1], 1)};
          const float dz[2] = {sum.x * slope * (open[0] * (1.0F - open[0])), sum.y * slope * (open[1] * (1.0F - open[1]))};
          of_bias.x += dz[0];
          of_bias.y += dz[1];
          of_slope += dz[0] * (logit[0] + gate.bias[0]) + dz[1] * (logit[1] + gate.bias[1]);
          *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(p.dg) + at) = pack_bf16(dz[0], dz[1]);
        }
      }
    }
    if constexpr (kInputs == Inputs::Raw) {
      *reinterpret_cast<float2*>(shared + S::kBiasSums + (group * D + channel) * 4) = of_bias;
#pragma unroll
      for (int mask = 1; mask < 32; mask *= 2) {
        of_slope += shuffle_xor(of_slope, mask);
      }
      if (thread % 32 == 0) {
        reinterpret_cast<float*>(shared + S::kSlopeSums)[thread / 32] = of_slope;
      }
    }
  }

  // The chunk's parts of the gate's parameters, after a barrier.
  static __device__ __forceinline__ void write_sums(const GradientParams& p, int64_t item, const unsigned char* shared, int thread) {
    if (thread < D) {
      float sum = 0.0F;
#pragma unroll
      for (int g = 0; g < S::kGroups; ++g) {
        sum += reinterpret_cast<const float*>(shared + S::kBiasSums)[g * D + thread];
      }
      p.bias_gradients[item * D + thread] = sum;
    } else if (thread == D) {
      float sum = 0.0F;
#pragma unroll
      for (int w = 0; w < S::kWarps; ++w) {
        sum += reinterpret_cast<const float*>(shared + S::kSlopeSums)[w];
      }
      p.slope_gradients[item] = sum;
    }
  }
};

template <int D, Inputs kInputs>
__device__ __forceinline__ void write_beta_gradient(const GradientParams& p, const ChunkEntry& chunk, int head, const unsigned char* shared,
                                                    int thread) {
  using S = GradientShared<D>;
  if (thread < chunk.rows) {
    const auto* parts = reinterpret_cast<const float*>(shared + S::kBetaSums) + thread;
    float sum = parts[0];
#pragma unroll
    for (int i = 1; i <= S::kParts; ++i) {
      sum += parts[i * kChunk];
    }
    const int64_t at = (chunk.first_token + thread) * p.in.heads + head;
    if constexpr (kInputs == Inputs::Ready) {
      static_cast<float*>(p.dbeta)[at] = sum;
    } else {
      const float beta = reinterpret_cast<const float*>(shared + S::kBeta)[thread];
      static_cast<uint16_t*>(p.dbeta)[at] = static_cast<uint16_t>(pack_bf16(sum * beta * (1.0F - beta), 0.0F));
    }
  }
}

}  // namespace longhaul::kda::cuda
