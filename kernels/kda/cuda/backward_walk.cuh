// The walk back along a document: the gradient of the state, one block a segment, head and part of the value columns, as
// in recurrence.cuh. With dS' of the state leaving a chunk, on rows of value columns again:
//   dVt^T = dS'^T (k e^{G_C - G})^T + dO^T A     dR^T = dVt^T + dVt^T (T - I)
//   dS^T  = dS'^T Diag(e^{G_C}) + dO^T (scale q e^G) - (beta dR)^T (k e^G)
// from (I + L) Vt = R, R = beta (v - (k e^G) S) (see kernels/kda/README.md). dS' and dR are written for the gradients of
// the inputs, which no longer depend on other chunks. Products are in fp16 with scaled rows, as in the forward walk.
#pragma once

#include "kernels/kda/cuda/pipeline.cuh"
#include "kernels/kda/cuda/products.cuh"
#include "kernels/kda/cuda/row_scale.cuh"
#include "kernels/kda/cuda/walk_stages.cuh"

namespace longhaul::kda::cuda {

// Gradient: writes what the gradients need. Transfer: what a segment does to a gradient, dS_in = M^T dS_out + dS_ext; the
// first parts walk dS_ext^T, the others M from the identity without outputs.
enum class BackwardWalk : uint8_t { Gradient, Transfer };

struct BackwardWalkParams {
  Tables tables;
  int documents;
  int heads;
  const unsigned char* images;
  const uint16_t* d_o;           // bf16 [tokens, heads, V]
  int64_t d_o_stride;            // elements between tokens
  const float* dfinal_state;     // [documents, heads, K, V] or absent
  float* dinitial_state;         // [documents, heads, K, V] or absent
  const int32_t* reach;          // [segments, heads] Transfer: see transfer.cuh
  float* entering_gradient;      // [segments, heads, V, K] dS_ext^T, after the merge dS^T of the state entering the segment
  float* transfer_matrix;        // [segments, heads, K, K] M
  unsigned char* state_gradients;     // panels [V, K] of dS'^T, [chunks, heads] (walk_stages.cuh)
  unsigned char* residual_gradients;  // panels [64, V] of dR, [chunks, heads]
  float* gradient_factors;            // [chunks, heads, V]
};

template <int K, int kGroups>
struct BackwardWalkShared {
  static constexpr int kColumns = 64 * kGroups;  // value columns of the block
  static constexpr int kImage = 0;
  static constexpr int kOutputs = static_cast<int>(round_up_to(ChunkImage<K>::kBytes, 1024));
  static constexpr int kStage = kOutputs + TokenRows::bytes(kColumns);
  static constexpr int kState = static_cast<int>(round_up_to(kStages * kStage, 1024));  // each group [64, K]
  static constexpr int kResidual = kState + kGroups * panel_bytes(64, K);               // each group [64, 64]
  static constexpr int kBarriers = kResidual + kGroups * panel_bytes(kChunk, 64);
  static constexpr int kBytes = kBarriers + Ring::kBytes;
  static constexpr bool kTrades = kGroups > 1;
  static constexpr int kThreads = 128 * kGroups + kFeedThreads;
  static constexpr int kFeedRegisters = 40;
  static constexpr int kComputeRegisters = 232;
};

template <int K, int V, int kGroups, Engine kEngine, BackwardWalk kWalk>
class StateGradient {
 public:
  using S = BackwardWalkShared<K, kGroups>;
  using I = ChunkImage<K>;

  // The last `skipped` chunks are left out, and what came after them.
  __device__ __forceinline__ StateGradient(const BackwardWalkParams& p, const SegmentEntry& segment, int segment_index, int head,
                                           int part, int skipped)
      : p_(p), segment_(segment), segment_index_(segment_index), head_(head), part_(part), forgets_(skipped > 0) {
    segment_.chunks -= skipped;
  }

  __device__ __forceinline__ void feed(Ring ring, int thread) const;
  __device__ __forceinline__ void compute(Ring ring, int thread);

 private:
  [[nodiscard]] __device__ __forceinline__ bool is_matrix() const {
    return kWalk == BackwardWalk::Transfer && part_ * S::kColumns >= V;
  }
  [[nodiscard]] __device__ __forceinline__ int64_t state_offset() const {
    return (static_cast<int64_t>(segment_index_) * p_.heads + head_) * V * K;
  }
  [[nodiscard]] __device__ __forceinline__ int chunk_of(int step) const { return segment_.first_chunk + segment_.chunks - 1 - step; }
  [[nodiscard]] __device__ __forceinline__ int64_t image_index(int step) const {
    return static_cast<int64_t>(chunk_of(step)) * p_.heads + head_;
  }
  // D tiles of dO^T in bf16: [n] tokens 16 n to 16 n + 15.
  __device__ __forceinline__ void load_outputs(uint32_t (&o)[4][4], TokenRows rows, int column, int lane) const {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      if (is_matrix()) {
        o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
      } else {
        ldmatrix_transposed(o[n], transposed_tiles(rows, 16 * n, column, lane));
      }
    }
  }
  __device__ __forceinline__ void load_state(float (&s)[K / 2], int warp, int lane) const;
  __device__ __forceinline__ void store_state(const float (&s)[K / 2], int warp, int lane) const;
  [[nodiscard]] __device__ __forceinline__ WalkStages<K> stages(int group) const {
    const uint32_t base = shared_address(dynamic_shared());
    return {base + static_cast<uint32_t>(S::kState + group * panel_bytes(64, K)),
            base + static_cast<uint32_t>(S::kResidual + group * panel_bytes(kChunk, 64))};
  }

  const BackwardWalkParams& p_;
  SegmentEntry segment_;
  int segment_index_;
  int head_;
  int part_;
  bool forgets_;
  RowScale scale_;
};

template <int K, int V, int kGroups, Engine kEngine, BackwardWalk kWalk>
__device__ __forceinline__ void StateGradient<K, V, kGroups, kEngine, kWalk>::feed(Ring ring, int thread) const {
  const uint32_t base = shared_address(dynamic_shared());
  const int first_column = head_ * V + part_ * S::kColumns;
  for (int step = 0; step < segment_.chunks; ++step) {
    const ChunkEntry chunk = p_.tables.chunks[chunk_of(step)];
    const int stage = step % kStages;
    const uint32_t to = base + static_cast<uint32_t>(stage * S::kStage);
    ring.wait_empty(step);
    if (thread == 0) {
      mbarrier_arrive_expect(ring.full(stage), I::kBytes);
      bulk_load(to + S::kImage, p_.images + image_index(step) * I::kBytes, I::kBytes, ring.full(stage));
    }
    if (!is_matrix()) {
      load_token_rows<S::kColumns>({to + S::kOutputs}, p_.d_o + chunk.first_token * p_.d_o_stride + first_column,
                                   p_.d_o_stride, chunk.rows, thread);
    }
    copies_arrive(ring.full(stage));
  }
}

template <int K, int V, int kGroups, Engine kEngine, BackwardWalk kWalk>
__device__ __forceinline__ void StateGradient<K, V, kGroups, kEngine, kWalk>::load_state(float (&s)[K / 2], int warp,
                                                                                         int lane) const {
  const int first_row = part_ * S::kColumns + warp / 4 * 64;
  const float* given = segment_.is_last != 0 && !forgets_ ? p_.dfinal_state : nullptr;
  const int64_t given_at = (static_cast<int64_t>(segment_.document) * p_.heads + head_) * K * V;
  const bool merged = kWalk != BackwardWalk::Transfer && segment_.is_last == 0;
  const float* leaving = merged ? p_.entering_gradient + state_offset() + static_cast<int64_t>(p_.heads) * V * K : nullptr;
#pragma unroll
  for (int i = 0; i < K / 2; ++i) {
    const int row = first_row + register_row(i, warp, lane);
    const int column = register_column(i, lane);
    float value = 0.0F;
    if (is_matrix()) {
      value = row - V == column ? 1.0F : 0.0F;
    } else if (merged) {
      value = leaving[row * K + column];
    } else if (given != nullptr) {
      value = given[given_at + static_cast<int64_t>(column) * V + row];
    }
    s[i] = value;
  }
}

template <int K, int V, int kGroups, Engine kEngine, BackwardWalk kWalk>
__device__ __forceinline__ void StateGradient<K, V, kGroups, kEngine, kWalk>::store_state(const float (&s)[K / 2], int warp,
                                                                                          int lane) const {
  const int first_row = part_ * S::kColumns + warp / 4 * 64;
  if constexpr (kWalk == BackwardWalk::Transfer) {
    float* to = is_matrix() ? p_.transfer_matrix + (static_cast<int64_t>(segment_index_) * p_.heads + head_) * K * K - V * K
                            : p_.entering_gradient + state_offset();
#pragma unroll
    for (int i = 0; i < K / 2; i += 2) {
      const int row = first_row + register_row(i, warp, lane);
      const float back = scale_.back[i / 2 % 2];
      *reinterpret_cast<float2*>(to + row * K + register_column(i, lane)) = make_float2(s[i] * back, s[i + 1] * back);
    }
    return;
  }
  if (p_.dinitial_state == nullptr || segment_.position > 0) {
    return;
  }
  float* to = p_.dinitial_state + (static_cast<int64_t>(segment_.document) * p_.heads + head_) * K * V;
#pragma unroll
  for (int i = 0; i < K / 2; ++i) {
    to[static_cast<int64_t>(register_column(i, lane)) * V + first_row + register_row(i, warp, lane)] = s[i] * scale_.back[i / 2 % 2];
  }
}

template <int K, int V, int kGroups, Engine kEngine, BackwardWalk kWalk>
__device__ __forceinline__ void StateGradient<K, V, kGroups, kEngine, kWalk>::compute(Ring ring, int thread) {
  constexpr bool writes = kWalk != BackwardWalk::Transfer;
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int group = warp / 4;
  const int column = warp * 16;  // first value column of the warp, in the block
  unsigned char* shared = dynamic_shared();
  const uint32_t base = shared_address(shared);
  float s[K / 2];
  load_state(s, warp, lane);
  for (int step = 0; step < segment_.chunks; ++step) {
    const int stage = step % kStages * S::kStage;
    const uint32_t image = base + static_cast<uint32_t>(stage);
    const auto panel = [&](int at) {
      return Panel{image + static_cast<uint32_t>(at), kChunk, (image >> 4) + static_cast<uint32_t>(at >> 4)};
    };
    const Panel keys = panel(I::kKeys);
    const Panel queries = panel(I::kQueries);
    const Panel leaving = panel(I::kLeaving);
    const Panel solve = panel(I::kSolve);
    const Panel scores = panel(I::kScores);
    const TokenRows outputs{image + S::kOutputs};
    const auto* decay = reinterpret_cast<const float*>(shared + stage + I::kDecay);
    const auto* beta = reinterpret_cast<const float*>(shared + stage + I::kBeta);

    if constexpr (writes) {
      if (thread % 128 == 0) {
        bulk_store_wait();
      }
      sync_named(1 + group, 128);
    }
    ring.wait_full(step);
    uint32_t sb[K / 16][4];
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
      round_to_a<Format::F16>(sb[k], s + 8 * k, s + 8 * k + 4);
    }
    uint32_t ob[4][4];
    load_outputs(ob, outputs, column, lane);
    scale_.template fit<K>(s, sb, ob);
    if constexpr (writes) {
      WalkStages<K>::put_factors(p_.gradient_factors + image_index(step) * V, scale_.back, sb, ob, part_ * S::kColumns + warp * 16, lane);
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        ob[n][i] = pack_f16(bf16_low(ob[n][i]) * scale_.to[i % 2], bf16_high(ob[n][i]) * scale_.to[i % 2]);
      }
      hold_all<kEngine>(ob[n]);
    }
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
      hold_all<kEngine>(sb[k]);
    }
    float r[32];
    begin_products<kEngine>();
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
      multiply<kEngine, 64, Order::RowsOfPanel>(r, sb[k], leaving, 0, 16 * k, k == 0 ? Into::Set : Into::Add, lane);
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      multiply<kEngine, 64, Order::ColumnsOfPanel>(r, ob[n], scores, 16 * n, 0, Into::Add, lane);
    }
    end_products<kEngine>();
    if constexpr (writes) {
      stages(group).put_state(s, warp, lane);
    }
    wait_products<kEngine, 0>();
    hold_all<kEngine>(r);
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
      hold_all<kEngine>(sb[k]);
    }
    uint32_t rb[4][4];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      round_to_a<Format::F16>(rb[n], r + 8 * n, r + 8 * n + 4);
      hold_all<kEngine>(rb[n]);
    }
#pragma unroll
    for (int i = 0; i < K / 2; i += 4) {
      const float2 d = *reinterpret_cast<const float2*>(decay + register_column(i, lane));
      s[i] *= d.x;
      s[i + 1] *= d.y;
      s[i + 2] *= d.x;
      s[i + 3] *= d.y;
    }
    hold_all<kEngine>(r);
    hold_all<kEngine>(s);
    begin_products<kEngine>();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      multiply<kEngine, 64, Order::ColumnsOfPanel>(r, rb[k], solve, 16 * k, 0, Into::Add, lane);
    }
    end_products<kEngine>();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      multiply<kEngine, K, Order::ColumnsOfPanel>(s, ob[k], queries, 16 * k, 0, Into::Add, lane);
    }
    end_products<kEngine>();
    wait_products<kEngine, 1>();
    hold_all<kEngine>(r);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      hold_all<kEngine>(rb[n]);
    }
    uint32_t xb[4][4];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      float x[8];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 b = *reinterpret_cast<const float2*>(beta + register_column(8 * n + 4 * half, lane));
        const float* from = r + 8 * n + 4 * half;
        x[4 * half] = b.x * from[0];
        x[4 * half + 1] = b.y * from[1];
        x[4 * half + 2] = b.x * from[2];
        x[4 * half + 3] = b.y * from[3];
      }
      round_to_a<Format::F16>(xb[n], x, x + 4);
      hold_all<kEngine>(xb[n]);
    }
    begin_products<kEngine>();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      multiply<kEngine, K, Order::ColumnsOfPanel, Sign::Minus>(s, xb[k], keys, 16 * k, 0, Into::Add, lane);
    }
    end_products<kEngine>();
    if constexpr (writes) {
      stages(group).put_rows(r, warp, lane);
      fence_async_proxy();
      sync_named(1 + group, 128);
      if (thread % 128 == 0) {
        stages(group).write(p_.state_gradients + image_index(step) * panel_bytes(V, K),
                            p_.residual_gradients + image_index(step) * panel_bytes(kChunk, V),
                            part_ * S::kColumns + group * 64, V);
      }
    }
    wait_products<kEngine, 0>();
    hold_all<kEngine>(s);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      hold_all<kEngine>(ob[n]);
      hold_all<kEngine>(xb[n]);
    }
    if (lane == 0) {
      mbarrier_arrive(ring.empty(step % kStages));
    }
  }
  store_state(s, warp, lane);
  if constexpr (writes) {
    if (thread % 128 == 0) {
      bulk_store_wait();
    }
  }
}

template <int K, int V, int kGroups, Engine kEngine, BackwardWalk kWalk>
__global__ void __launch_bounds__(BackwardWalkShared<K, kGroups>::kThreads, 1) backward_walk_kernel(const BackwardWalkParams p) {
#if LH_KDA_SM90A
  using S = BackwardWalkShared<K, kGroups>;
  constexpr int parts = (kWalk == BackwardWalk::Transfer ? V + K : V) / S::kColumns;
  const int part = block_index() % parts;
  const int head = block_index() / parts % p.heads;
  const int slot = block_index() / parts / p.heads;
  if (slot >= p.tables.document_segments[p.documents]) {
    return;
  }
  const int segment_index = p.tables.order[slot];
  const SegmentEntry segment = p.tables.segments[segment_index];
  int skipped = 0;
  if constexpr (kWalk == BackwardWalk::Transfer) {
    skipped = p.reach[static_cast<int64_t>(segment_index) * p.heads + head];
    // The first segment hands on nothing. The last one starts from the given gradient, which needs no matrix.
    const bool no_matrix = segment.is_last != 0 || skipped > 0;
    if (segment.position == 0 || (no_matrix && part * S::kColumns >= V)) {
      return;
    }
  }
  const Ring ring{shared_address(dynamic_shared()) + S::kBarriers};
  const int thread = thread_index();
  if (thread == 0) {
    ring.init(4 * kGroups);
  }
  sync_block();
  StateGradient<K, V, kGroups, kEngine, kWalk> walk(p, segment, segment_index, head, part, skipped);
  if (thread >= 128 * kGroups) {
    if constexpr (S::kTrades) {
      fewer_registers<S::kFeedRegisters>();
    }
    walk.feed(ring, thread - 128 * kGroups);
  } else {
    if constexpr (S::kTrades) {
      more_registers<S::kComputeRegisters>();
    }
    walk.compute(ring, thread);
  }
#endif
}

}  // namespace longhaul::kda::cuda
