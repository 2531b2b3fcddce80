// Gradients of a chunk's inputs, one block a chunk and head, once the states entering and the gradients leaving every chunk
// are known (kernels/kda/README.md has the derivation). With S entering, dS' leaving, Vt, dR and dO:
//   dA = tril(dO Vt^T)          dL = -stril(dR Vt^T)
//   row_q_i = e^{G_i} (S dO_i)  + sum_{j<i} dA_ij k_j E_ij          col_j = sum_{i>j} (dA_ij scale q_i + beta_i dL_ij k_i) E_ij
//   row_k_i = -e^{G_i} (S dR_i) + sum_{j<i} dL_ij k_j E_ij          out_j = e^{G_C - G_j} (dS' Vt_j)
//   dq_i = scale (row_q_i + dA_ii k_i)                              dk_i = beta_i row_k_i + col_i + out_i + dA_ii scale q_i
//   dv_i = beta_i dR_i                                              dbeta_i = <dR_i, v_i> + <k_i, row_k_i>
//   dg_t = sum_{i>=t} (scale q_i row_q_i + k_i (beta_i row_k_i - col_i)) + sum_{j<t} k_j out_j + e^{G_C} rowsum(S dS')
// The pair i = j is no part of dg: E_ii = 1 has no derivative.
//
// E_ij = 2^{F_i} 2^{P_I - P_J} 2^{-F_j} for rows of tiles I and J, P the position of a tile's first row and F the decay from
// there. Operands carry 2^{F_i} and 2^{-F_j} (row 0 of a tile is the anchor, which lies in the past), each times 2^{+-54} so that
// both stay in the middle of the range of bf16; the accumulators take the decay between tiles as they pass them. dA, dL and
// columns are two bf16 values each, the second what the rounding of the first left: with nearly parallel keys the terms of row_q
// cancel, and their rounding adds up.
//
// Shared memory of the states is free for the next chunk's as soon as the products with them are done, and fills while the rest
// is computed; that of the residuals takes those second values first.
#pragma once

#include "kernels/kda/cuda/gradient_finish.cuh"
#include "kernels/kda/cuda/gradient_parts.cuh"

namespace longhaul::kda::cuda {

// The chunks and heads of a block: `block`, then `block + blocks`, and so on.
struct GradientCursor {
  int item;
  int chunk;
  int head;

  explicit __device__ __forceinline__ GradientCursor(int heads)
      : item(block_index()), chunk(item / heads), head(item - chunk * heads) {}
  __device__ __forceinline__ void advance(int chunk_step, int head_step, int heads) {
    item += chunk_step * heads + head_step;
    chunk += chunk_step;
    head += head_step;
    if (head >= heads) {
      head -= heads;
      ++chunk;
    }
  }
};

// A block's chunk, and the one after it, if there is one.
template <int D, Inputs kInputs>
struct GradientTurn {
  int item;
  int head;
  ChunkEntry chunk;
  GradientCursor after;
  bool has_next = true;
  ChunkEntry next;
  OperandInputs<D, kInputs> inputs;  // of this chunk, from the middle of the turn on of the next
};

// From the scores on. `acc_q`, `acc_k` and `out` are the products with the states.
template <int D, Inputs kInputs>
__device__ __forceinline__ void finish_chunk(float (&acc_q)[16], float (&acc_k)[16], float (&out)[16], const Scores<D>& scores,
                                             const GradientParams& p, GradientTurn<D, kInputs>& turn, unsigned char* shared, int thread) {
  const uint32_t base = shared_address(shared);
  const ChunkEntry& chunk = turn.chunk;
  const int head = turn.head;
  const float unit = Factors<D>::unit(shared);
  {
    const TilePlace at(thread);
    const ScoreTiles<D> tiles(at);
#pragma unroll
    for (int i = 0; i < ScoreTiles<D>::kTurns; ++i) {
      if (tiles.column_tile(i) <= at.tile) {
        put_scores<D>(scores[i], unit, tiles.is_queries, tiles.column_tile(i), shared, at);
      }
    }
  }
  turn.next = p.tables.chunks[turn.after.chunk];
  if (turn.has_next) {
    if (thread == 0) {
      fetch_states<D>(p, turn.after.item, base);
    }
    prefetch_inputs<D, kInputs>(p, turn.next, turn.after.head, thread);
  }
  finish_state_sum<D>(shared, unit * kDown, thread);
  sync_block();
  forget(thread);
  const TilePlace at(thread);
  PlaceInputs in;
  in.fetch<D>(p, chunk, head, at);
  // The state comes to row_q and row_k as if from a tile before.
  const float to_tiles = unit * kDown;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    acc_q[i] *= to_tiles;
    acc_k[i] *= -to_tiles;
  }
  float col[16] = {};
  multiply_tiles<D, Diagonal::Product>(acc_q, acc_k, col, shared, base, at);
  in.mask(chunk.rows, at);
  finish_rows<D, kInputs>(acc_q, acc_k, col, out, in, p, unit, shared, at);
  if constexpr (kInputs == Inputs::Ready) {
    store_rows<D>(acc_q, acc_k, p, chunk, head, at);
  }
  forget(thread);
  GateGradients<D, kInputs> gate(thread);
  gate.fetch(p, chunk, head);
  // The copy engine writes next where rests have been.
  fence_async_proxy();
  sync_block();
  if constexpr (kInputs == Inputs::Raw) {
    stage_rows<D>(acc_q, acc_k, in, shared, base, at);
  }
  if (turn.has_next && thread == 0) {
    fetch_rows<D>(p, turn.after.item, base);
  }
  turn.inputs.fetch(p, turn.next, turn.after.head, thread);
  gate.write(p, chunk, head, shared, thread);
  write_beta_gradient<D, kInputs>(p, chunk, head, shared, thread);
  sync_block();
  if constexpr (kInputs == Inputs::Raw) {
    forget(thread);
    copy_rows<D>(p, chunk, head, shared, thread);
    gate.write_sums(p, turn.item, shared, thread);
  }
}

template <int D, Inputs kInputs>
__global__ void __launch_bounds__(GradientShared<D>::kThreads, D == 128 ? 1 : 2) gradients_kernel(const GradientParams p) {
#if LH_KDA_SM90A
  using S = GradientShared<D>;
  unsigned char* shared = dynamic_shared();
  const uint32_t base = shared_address(shared);
  int thread = thread_index();
  const int items = p.tables.document_chunks[p.documents] * p.in.heads;
  if (block_index() >= items) {
    return;
  }
  if (thread == 0) {
    mbarrier_init(base + S::kBarrier, 1);
    fence_barrier_init();
    fetch_states<D>(p, block_index(), base);
    fetch_rows<D>(p, block_index(), base);
  }
  const int blocks = static_cast<int>(grid_blocks());
  const int chunk_step = blocks / p.in.heads;
  const int head_step = blocks - chunk_step * p.in.heads;
  GradientTurn<D, kInputs> turn{.after = GradientCursor(p.in.heads)};
  turn.next = p.tables.chunks[turn.after.chunk];
  turn.inputs.fetch(p, turn.next, turn.after.head, thread);
  sync_block();
  for (uint32_t count = 0; turn.has_next; ++count) {
    turn.item = turn.after.item;
    turn.head = turn.after.head;
    turn.chunk = turn.next;
    GradientCursor after = turn.after;
    after.advance(chunk_step, head_step, p.in.heads);
    turn.has_next = after.item < items;
    // Else the last one again: what is fetched on a condition would be kept in registers through all of a turn.
    turn.after = turn.has_next ? after : turn.after;
    // Addresses are cheaper to form anew than to keep.
    forget(thread);
    ColumnRest<D> rest;
    {
      ValueGradients<D, kInputs> values;
      fetch_outputs<D>(p, turn.chunk, turn.head, base, thread);
      values.fetch(p, turn.chunk, turn.head, thread);
      Factors<D> factors;
      factors.fetch(p, turn.item, thread);
      form_operands<D, kInputs>(turn.inputs, rest, p, turn.chunk, turn.head, factors, shared, thread);
      const float unit = Factors<D>::unit(shared);
      const bool must_rescale = Factors<D>::must_rescale(shared, unit, thread);
      copies_wait();
      Factors<D>::scale_outputs(shared, unit, thread);
      mbarrier_wait(base + S::kBarrier, count % 2);
      values.write(p, turn.chunk, turn.head, shared, thread);
      sync_block();
      if (must_rescale) {
        Factors<D>::rescale_gradients(shared, unit, thread);
        sync_block();
      }
    }
    forget(thread);
    float acc_q[16];  // of row_q
    float acc_k[16];  // of row_k
    float out[16];
    Scores<D> scores;
    multiply_states<D>(acc_q, acc_k, out, scores, base, TilePlace(thread), [&] { sum_states<D>(shared, base, thread); });
    sync_block();
    forget(thread);
    rest.write(shared, thread);
    finish_chunk<D, kInputs>(acc_q, acc_k, out, scores, p, turn, shared, thread);
  }
#endif
}

}  // namespace longhaul::kda::cuda
