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
// there. Operands carry 2^{F_i} and 2^{-F_j} (row 0 of a tile is the anchor, which lies in the past), shifted so that both stay in
// the middle of the range of their format (TileFormat); the accumulators take the decay between tiles as they pass them.
//
// Shared memory of the states is free for the next chunk's as soon as the products with them are done, and fills while the rest
// is computed.
#pragma once

#include "kernels/kda/cuda/gradient_finish.cuh"
#include "kernels/kda/cuda/gradient_parts.cuh"

namespace longhaul::kda::cuda {

// From the scores on. `acc_q`, `acc_k` and `out` are the products with the states.
template <int D, Inputs kInputs, Format kFormat>
__device__ __forceinline__ void finish_chunk(float (&acc_q)[16], float (&acc_k)[16], float (&out)[16], const Scores<D>& scores,
                                             const GradientParams& p, const ChunkEntry& chunk, int64_t item, int head,
                                             unsigned char* shared, int thread) {
  const uint32_t base = shared_address(shared);
  float scale = 1.0F;
  if constexpr (kFormat == Format::F16) {
    share_largest<D>(scores, shared, thread);
    sync_block();
    scale = score_scale<D>(shared);
  }
  {
    const TilePlace at(thread);
    const ScoreTiles<D> tiles(at);
#pragma unroll
    for (int turn = 0; turn < ScoreTiles<D>::kTurns; ++turn) {
      if (tiles.column_tile(turn) <= at.tile) {
        put_scores<D, kFormat>(scores[turn], scale, tiles.is_queries, tiles.column_tile(turn), shared, at);
      }
    }
  }
  sync_block();
  forget(thread);
  if (item + grid_blocks() < static_cast<int64_t>(p.tables.document_chunks[p.documents]) * p.in.heads) {
    if (thread == 0) {
      fetch_states<D>(p, item + grid_blocks(), base);
    }
    prefetch_inputs<D, kInputs>(p, p.tables.chunks[(item + grid_blocks()) / p.in.heads],
                                static_cast<int>((item + grid_blocks()) % p.in.heads), thread);
  }
  const float unit = Factors<D>::unit(shared);
  finish_state_sum<D>(shared, unit * TileFormat<kFormat>::kDown, thread);
  const TilePlace at(thread);
  PlaceInputs in;
  in.fetch<D>(p, chunk, head, at);
  // The state comes to row_q and row_k as if from a tile before.
  const float to_tiles = scale * TileFormat<kFormat>::kDown;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    acc_q[i] *= to_tiles;
    acc_k[i] *= -to_tiles;
  }
  float col[16] = {};
  multiply_tiles<D, kFormat, Diagonal::Product>(acc_q, acc_k, col, shared, base, at);
  finish_rows<D, kInputs, kFormat>(acc_q, acc_k, col, out, in, p, unit * reciprocal_fast(scale), unit, chunk.rows, shared, at);
  if constexpr (kInputs == Inputs::Ready) {
    store_rows<D>(acc_q, acc_k, p, chunk, head, at);
  }
  forget(thread);
  GateGradients<D, kInputs> gate(thread);
  gate.fetch(p, chunk, head);
  sync_block();
  if constexpr (kInputs == Inputs::Raw) {
    stage_rows<D>(acc_q, acc_k, in, shared, base, at);
  }
  gate.write(p, chunk, head, shared, thread);
  write_beta_gradient<D, kInputs>(p, chunk, head, shared, thread);
  sync_block();
  if constexpr (kInputs == Inputs::Raw) {
    forget(thread);
    copy_rows<D>(p, chunk, head, shared, thread);
    gate.write_sums(p, item, shared, thread);
  }
}

template <int D, Inputs kInputs>
__global__ void __launch_bounds__(GradientShared<D>::kThreads, D == 128 ? 1 : 2) gradients_kernel(const GradientParams p) {
#if LH_KDA_SM90A
  using S = GradientShared<D>;
  unsigned char* shared = dynamic_shared();
  const uint32_t base = shared_address(shared);
  int thread = thread_index();
  const int64_t items = static_cast<int64_t>(p.tables.document_chunks[p.documents]) * p.in.heads;
  int64_t item = block_index();
  if (thread == 0) {
    reinterpret_cast<int32_t*>(shared + S::kStrong)[0] = 0;
    mbarrier_init(base + S::kBarrier, 1);
    fence_barrier_init();
    if (item < items) {
      fetch_states<D>(p, item, base);
    }
  }
  sync_block();
  for (uint32_t turn = 0; item < items; item += grid_blocks(), ++turn) {
    const ChunkEntry chunk = p.tables.chunks[item / p.in.heads];
    const int head = static_cast<int>(item % p.in.heads);
    // Addresses are cheaper to form anew than to keep.
    forget(thread);
    bool is_strong;
    {
      ValueGradients<D, kInputs> values;
      fetch_outputs<D>(p, chunk, head, base, thread);
      values.fetch(p, chunk, head, thread);
      Factors<D> factors;
      factors.fetch(p, item, thread);
      is_strong = form_operands<D, kInputs>(p, chunk, head, factors, shared, turn, thread);
      const float unit = Factors<D>::unit(shared);
      const bool must_rescale = Factors<D>::must_rescale(shared, unit, thread);
      copies_wait();
      Factors<D>::scale_outputs(shared, unit, thread);
      mbarrier_wait(base + S::kBarrier, turn % 2);
      values.write(p, chunk, head, shared, thread);
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
    forget(thread);
    if (is_strong) {
      finish_chunk<D, kInputs, Format::Bf16>(acc_q, acc_k, out, scores, p, chunk, item, head, shared, thread);
    } else {
      finish_chunk<D, kInputs, Format::F16>(acc_q, acc_k, out, scores, p, chunk, item, head, shared, thread);
    }
  }
#endif
}

}  // namespace longhaul::kda::cuda
