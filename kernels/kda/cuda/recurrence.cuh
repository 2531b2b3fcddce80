// The walk along a document: one block a segment, head and part of the value columns, each warpgroup 64 value columns.
// Rows of everything here are value columns, so that the state S^T [64, K] stays in the registers of its warpgroup in
// fp32 from the first chunk to the last, and every product takes its left operand from registers:
//   P = S^T (k e^G)^T        R = beta (v^T - P)       Vt = R + R (T - I)^T
//   O = S^T (q e^G)^T + Vt A^T                        S^T <- S^T Diag(e^{G_C}) + Vt (k e^{G_C - G})
// The identity in T = (I + L)^-1 is added in fp32. Warpgroups never exchange anything. Products are in fp16, with each
// row scaled to its range (row_scale.cuh): bf16's 8 bits do not do when keys are nearly parallel and beta near 1, where
// residuals alternate and cancel over the chunk.
#pragma once

#include "kernels/kda/cuda/pipeline.cuh"
#include "kernels/kda/cuda/products.cuh"
#include "kernels/kda/cuda/row_scale.cuh"
#include "kernels/kda/cuda/walk_stages.cuh"

namespace longhaul::kda::cuda {

// Output: outputs and the final state. Training: these, and what backward reads. Transfer: what a segment does to a
// state, S_out = M S_in + S_ext; the first parts walk S_ext from the state zero, the others M from the identity without
// values.
enum class Walk : uint8_t { Output, Training, Transfer };

struct RecurrenceParams {
  Tables tables;
  int documents;
  int heads;
  const unsigned char* images;
  const uint16_t* v;           // bf16 [tokens, heads, V]
  int64_t v_stride;            // elements between tokens
  uint16_t* o;                 // bf16 [tokens, heads, V]
  int64_t o_stride;
  const float* initial_state;  // [documents, heads, K, V] or absent
  float* final_state;          // [documents, heads, K, V] or absent
  const int32_t* reach;        // [segments, heads] Transfer: see transfer.cuh
  float* leaving_state;        // [segments, heads, V, K] S_ext^T, after the merge S^T leaving the segment
  float* transfer_matrix;      // [segments, heads, K, K] M^T
  unsigned char* states;       // Training: panels [V, K] of S^T entering each chunk, [chunks, heads] (walk_stages.cuh)
  unsigned char* residuals;    // Training: panels [64, V] of Vt, [chunks, heads]
  float* factors;              // Training: [chunks, heads, V]
};

template <int K, int kGroups>
struct RecurrenceShared {
  static constexpr int kColumns = 64 * kGroups;  // value columns of the block
  static constexpr int kImage = 0;
  static constexpr int kValues = static_cast<int>(round_up_to(ChunkImage<K>::kBytes, 1024));
  static constexpr int kStage = kValues + TokenRows::bytes(kColumns);
  static constexpr int kOutput = kStages * kStage;
  static constexpr int kResidual = kOutput + TokenRows::bytes(kColumns);
  static constexpr int kState = kResidual + TokenRows::bytes(kColumns);          // each group [64, K]
  static constexpr int kEntries = kState + kGroups * WalkStages<K>::kStateBytes;  // ChunkEntry of each stage
  static constexpr int kBarriers = kEntries + kStages * static_cast<int>(sizeof(ChunkEntry));
  static constexpr int kBytes = kBarriers + Ring::kBytes;
  // The warpgroup that feeds gives registers away where two others compute: a multiprocessor has 65536.
  static constexpr bool kTrades = kGroups > 1;
  static constexpr int kThreads = 128 * kGroups + kFeedThreads;
  static constexpr int kFeedRegisters = 40;
  static constexpr int kComputeRegisters = 232;
};

// D tiles of the warp, [16 values, 64 tokens], times a factor a row, to token rows in bf16.
__device__ __forceinline__ void stage_rows(TokenRows to, const float (&d)[32], const float (&factor)[2], int column, int lane) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const float* left = d + 8 * n;
    const float* right = left + 4;
    const uint32_t tiles[4] = {
        pack_bf16(left[0] * factor[0], left[1] * factor[0]), pack_bf16(left[2] * factor[1], left[3] * factor[1]),
        pack_bf16(right[0] * factor[0], right[1] * factor[0]), pack_bf16(right[2] * factor[1], right[3] * factor[1])};
    stmatrix_transposed(transposed_tiles(to, 16 * n, column, lane), tiles);
  }
}

template <int K, int V, int kGroups, Engine kEngine, Walk kWalk>
class Recurrence {
 public:
  using S = RecurrenceShared<K, kGroups>;
  using I = ChunkImage<K>;

  // The first `skipped` chunks are left out, and what came before them.
  __device__ __forceinline__ Recurrence(const RecurrenceParams& p, const SegmentEntry& segment, int segment_index, int head,
                                        int part, int skipped)
      : p_(p), segment_(segment), segment_index_(segment_index), head_(head), part_(part), forgets_(skipped > 0) {
    segment_.first_chunk += skipped;
    segment_.chunks -= skipped;
  }

  __device__ __forceinline__ void feed(Ring ring, int thread) const;
  __device__ __forceinline__ void compute(Ring ring, int thread);

 private:
  [[nodiscard]] __device__ __forceinline__ bool is_matrix() const {
    return kWalk == Walk::Transfer && part_ * S::kColumns >= V;
  }
  [[nodiscard]] __device__ __forceinline__ int64_t state_offset() const {
    return (static_cast<int64_t>(segment_index_) * p_.heads + head_) * V * K;
  }
  [[nodiscard]] __device__ __forceinline__ int64_t image_index(int step) const {
    return static_cast<int64_t>(segment_.first_chunk + step) * p_.heads + head_;
  }
  // D tiles of v^T: [n] tokens 16 n to 16 n + 15.
  __device__ __forceinline__ void load_values(uint32_t (&v)[4][4], TokenRows values, int column, int lane) const {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      if (is_matrix()) {
        v[n][0] = v[n][1] = v[n][2] = v[n][3] = 0;
      } else {
        ldmatrix_transposed(v[n], transposed_tiles(values, 16 * n, column, lane));
      }
    }
  }
  __device__ __forceinline__ void load_state(float (&s)[K / 2], int warp, int lane) const;
  __device__ __forceinline__ void store_state(const float (&s)[K / 2], int warp, int lane) const;
  __device__ __forceinline__ void write_rows(int step, int thread) const;

  const RecurrenceParams& p_;
  SegmentEntry segment_;
  int segment_index_;
  int head_;
  int part_;
  bool forgets_;
  RowScale scale_;
};

template <int K, int V, int kGroups, Engine kEngine, Walk kWalk>
__device__ __forceinline__ void Recurrence<K, V, kGroups, kEngine, kWalk>::feed(Ring ring, int thread) const {
  unsigned char* shared = dynamic_shared();
  const uint32_t base = shared_address(shared);
  const int first_column = head_ * V + part_ * S::kColumns;
  for (int step = 0; step < segment_.chunks; ++step) {
    const ChunkEntry chunk = p_.tables.chunks[segment_.first_chunk + step];
    const int stage = step % kStages;
    const uint32_t to = base + static_cast<uint32_t>(stage * S::kStage);
    ring.wait_empty(step);
    if (thread == 0) {
      *reinterpret_cast<ChunkEntry*>(shared + S::kEntries + stage * static_cast<int>(sizeof(ChunkEntry))) = chunk;
      mbarrier_arrive_expect(ring.full(stage), I::kBytes);
      bulk_load(to + S::kImage, p_.images + image_index(step) * I::kBytes, I::kBytes, ring.full(stage));
    }
    if (!is_matrix()) {
      load_token_rows<S::kColumns>({to + S::kValues}, p_.v + chunk.first_token * p_.v_stride + first_column,
                                   p_.v_stride, chunk.rows, thread);
    }
    copies_arrive(ring.full(stage));
  }
}

template <int K, int V, int kGroups, Engine kEngine, Walk kWalk>
__device__ __forceinline__ void Recurrence<K, V, kGroups, kEngine, kWalk>::load_state(float (&s)[K / 2], int warp,
                                                                                      int lane) const {
  const int first_row = part_ * S::kColumns + warp / 4 * 64;
  const float* given = segment_.position == 0 && !forgets_ ? p_.initial_state : nullptr;
  const int64_t given_at = (static_cast<int64_t>(segment_.document) * p_.heads + head_) * K * V;
  const bool merged = kWalk != Walk::Transfer && segment_.position > 0;
  const float* entering = merged ? p_.leaving_state + state_offset() - static_cast<int64_t>(p_.heads) * V * K : nullptr;
#pragma unroll
  for (int i = 0; i < K / 2; ++i) {
    const int row = first_row + register_row(i, warp, lane);
    const int column = register_column(i, lane);
    float value = 0.0F;
    if (is_matrix()) {
      value = row - V == column ? 1.0F : 0.0F;
    } else if (merged) {
      value = entering[row * K + column];
    } else if (given != nullptr) {
      value = given[given_at + static_cast<int64_t>(column) * V + row];
    }
    s[i] = value;
  }
}

template <int K, int V, int kGroups, Engine kEngine, Walk kWalk>
__device__ __forceinline__ void Recurrence<K, V, kGroups, kEngine, kWalk>::store_state(const float (&s)[K / 2], int warp,
                                                                                       int lane) const {
  const int first_row = part_ * S::kColumns + warp / 4 * 64;
  if constexpr (kWalk == Walk::Transfer) {
    float* to = is_matrix() ? p_.transfer_matrix + (static_cast<int64_t>(segment_index_) * p_.heads + head_) * K * K - V * K
                            : p_.leaving_state + state_offset();
#pragma unroll
    for (int i = 0; i < K / 2; i += 2) {
      const int row = first_row + register_row(i, warp, lane);
      *reinterpret_cast<float2*>(to + row * K + register_column(i, lane)) = make_float2(s[i] * scale_.back[i / 2 % 2], s[i + 1] * scale_.back[i / 2 % 2]);
    }
    return;
  }
  if (p_.final_state == nullptr || segment_.is_last == 0) {
    return;
  }
  float* to = p_.final_state + (static_cast<int64_t>(segment_.document) * p_.heads + head_) * K * V;
#pragma unroll
  for (int i = 0; i < K / 2; ++i) {
    to[static_cast<int64_t>(register_column(i, lane)) * V + first_row + register_row(i, warp, lane)] = s[i] * scale_.back[i / 2 % 2];
  }
}

// The warpgroup's staged 64 columns of outputs to global memory, 16 bytes a thread.
template <int K, int V, int kGroups, Engine kEngine, Walk kWalk>
__device__ __forceinline__ void Recurrence<K, V, kGroups, kEngine, kWalk>::write_rows(int step, int thread) const {
  unsigned char* shared = dynamic_shared();
  const auto& chunk =
      *reinterpret_cast<const ChunkEntry*>(shared + S::kEntries + step % kStages * static_cast<int>(sizeof(ChunkEntry)));
  const int group = thread / 128;
  const int column = group * 64 + thread % 8 * 8;  // in the block
  uint16_t* o = p_.o + chunk.first_token * p_.o_stride + static_cast<int64_t>(head_) * V + part_ * S::kColumns + column;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = thread % 128 / 8 + 16 * i;
    if (row < chunk.rows) {
      *reinterpret_cast<uint4*>(o + row * p_.o_stride) =
          *reinterpret_cast<const uint4*>(shared + S::kOutput + panel_offset(row, column, kChunk));
    }
  }
}

template <int K, int V, int kGroups, Engine kEngine, Walk kWalk>
__device__ __forceinline__ void Recurrence<K, V, kGroups, kEngine, kWalk>::compute(Ring ring, int thread) {
  constexpr bool writes = kWalk != Walk::Transfer;
  constexpr bool saves = kWalk == Walk::Training;
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int group = warp / 4;
  const int column = warp * 16;  // first value column of the warp, in the block
  unsigned char* shared = dynamic_shared();
  const uint32_t base = shared_address(shared);
  const WalkStages<K> stages{base + static_cast<uint32_t>(S::kState + group * WalkStages<K>::kStateBytes),
                             base + static_cast<uint32_t>(S::kResidual + group * WalkStages<K>::kSlabBytes)};
  float s[K / 2];
  load_state(s, warp, lane);
  for (int step = 0; step < segment_.chunks; ++step) {
    if constexpr (saves) {
      if (thread % 128 == 0) {
        bulk_store_wait();
      }
      sync_named(1 + group, 128);
    }
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
    const TokenRows values{image + S::kValues};
    const auto* decay = reinterpret_cast<const float*>(shared + stage + I::kDecay);
    const auto* beta = reinterpret_cast<const float*>(shared + stage + I::kBeta);

    ring.wait_full(step);
    uint32_t sb[K / 16][4];
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
      round_to_a<Format::F16>(sb[k], s + 8 * k, s + 8 * k + 4);
    }
    {
      uint32_t v[4][4];
      load_values(v, values, column, lane);
      scale_.template fit<K>(s, sb, v);
      if constexpr (saves) {
        stages.put_factors(p_.factors + image_index(step) * V, scale_.back, sb, v, part_ * S::kColumns + warp * 16, lane);
      }
    }
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
      hold_all<kEngine>(sb[k]);
    }
    if constexpr (saves) {
      stages.put_state(s, warp, lane);
    }
    float r[32];
    float o[32];
    begin_products<kEngine>();
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
      multiply<kEngine, 64, Order::RowsOfPanel>(r, sb[k], keys, 0, 16 * k, k == 0 ? Into::Set : Into::Add, lane);
    }
    end_products<kEngine>();
    if constexpr (writes) {
#pragma unroll
      for (int k = 0; k < K / 16; ++k) {
        multiply<kEngine, 64, Order::RowsOfPanel>(o, sb[k], queries, 0, 16 * k, k == 0 ? Into::Set : Into::Add, lane);
      }
      end_products<kEngine>();
    }
    wait_products<kEngine, writes ? 1 : 0>();
    hold_all<kEngine>(r);
    uint32_t rb[4][4];
    {
      uint32_t v[4][4];
      load_values(v, values, column, lane);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float2 b = *reinterpret_cast<const float2*>(beta + register_column(4 * n, lane));
        float* x = r + 4 * n;
        const uint32_t* pair = v[n / 2] + n % 2 * 2;
        x[0] = b.x * (bf16_low(pair[0]) * scale_.to[0] - x[0]);
        x[1] = b.y * (bf16_high(pair[0]) * scale_.to[0] - x[1]);
        x[2] = b.x * (bf16_low(pair[1]) * scale_.to[1] - x[2]);
        x[3] = b.y * (bf16_high(pair[1]) * scale_.to[1] - x[3]);
      }
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      round_to_a<Format::F16>(rb[n], r + 8 * n, r + 8 * n + 4);
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      hold_all<kEngine>(rb[n]);
    }
    hold_all<kEngine>(r);
    begin_products<kEngine>();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      multiply<kEngine, 64, Order::RowsOfPanel>(r, rb[k], solve, 0, 16 * k, Into::Add, lane);
    }
    end_products<kEngine>();
#pragma unroll
    for (int i = 0; i < K / 2; i += 4) {
      const float2 d = *reinterpret_cast<const float2*>(decay + register_column(i, lane));
      s[i] *= d.x;
      s[i + 1] *= d.y;
      s[i + 2] *= d.x;
      s[i + 3] *= d.y;
    }
    wait_products<kEngine, 0>();
    hold_all<kEngine>(r);
    // The left operands stay where they are until their products are done.
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
      hold_all<kEngine>(sb[k]);
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      hold_all<kEngine>(rb[n]);
    }
    uint32_t vb[4][4];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      round_to_a<Format::F16>(vb[n], r + 8 * n, r + 8 * n + 4);
      hold_all<kEngine>(vb[n]);
    }
    hold_all<kEngine>(s);
    if constexpr (writes) {
      hold_all<kEngine>(o);
    }
    begin_products<kEngine>();
    if constexpr (writes) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        multiply<kEngine, 64, Order::RowsOfPanel>(o, vb[k], scores, 0, 16 * k, Into::Add, lane);
      }
      end_products<kEngine>();
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      multiply<kEngine, K, Order::ColumnsOfPanel>(s, vb[k], leaving, 16 * k, 0, Into::Add, lane);
    }
    end_products<kEngine>();
    if constexpr (writes) {
      wait_products<kEngine, 1>();
      hold_all<kEngine>(o);
      sync_named(1 + group, 128);
      stage_rows({base + S::kOutput}, o, scale_.back, column, lane);
      if constexpr (saves) {
        stages.put_rows(r, warp, lane);
        fence_async_proxy();
      }
      sync_named(1 + group, 128);
      write_rows(step, thread);
      if (saves && thread % 128 == 0) {
        stages.write(p_.states + image_index(step) * panel_bytes(V, K), p_.residuals + image_index(step) * panel_bytes(kChunk, V),
                     part_ * S::kColumns + group * 64, V);
      }
    }
    wait_products<kEngine, 0>();
    hold_all<kEngine>(s);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      hold_all<kEngine>(vb[n]);
    }
    if (lane == 0) {
      mbarrier_arrive(ring.empty(step % kStages));
    }
  }
  store_state(s, warp, lane);
  if (saves && thread % 128 == 0) {
    bulk_store_wait();
  }
}

template <int K, int V, int kGroups, Engine kEngine, Walk kWalk>
__global__ void __launch_bounds__(RecurrenceShared<K, kGroups>::kThreads, 1) recurrence_kernel(const RecurrenceParams p) {
#if LH_KDA_SM90A
  using S = RecurrenceShared<K, kGroups>;
  constexpr int parts = (kWalk == Walk::Transfer ? V + K : V) / S::kColumns;
  const int part = block_index() % parts;
  const int head = block_index() / parts % p.heads;
  const int slot = block_index() / parts / p.heads;
  if (slot >= p.tables.document_segments[p.documents]) {
    return;
  }
  const int segment_index = p.tables.order[slot];
  const SegmentEntry segment = p.tables.segments[segment_index];
  int skipped = 0;
  if constexpr (kWalk == Walk::Transfer) {
    skipped = p.reach[static_cast<int64_t>(segment_index) * p.heads + head];
    // The last segment hands on nothing. The first one starts from the given state, which needs no matrix.
    const bool no_matrix = segment.position == 0 || skipped > 0;
    if (segment.is_last != 0 || (no_matrix && part * S::kColumns >= V)) {
      return;
    }
  }
  const Ring ring{shared_address(dynamic_shared()) + S::kBarriers};
  const int thread = thread_index();
  if (thread == 0) {
    ring.init(4 * kGroups);
  }
  sync_block();
  Recurrence<K, V, kGroups, kEngine, kWalk> walk(p, segment, segment_index, head, part, skipped);
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
