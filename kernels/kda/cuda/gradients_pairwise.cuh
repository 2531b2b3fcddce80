// gradients.cuh for gates without a bound (softplus decay, Kimi Linear, arXiv:2510.26692): the same gradients of a chunk's inputs,
// one block a chunk and head.
//
// Products with the states, and dA and dL, are those of the bounded gate. Below the diagonal E_ij is the product of the decay from
// row j to the end of its tile, over the tiles between, and from the start of row i's tile to row i, all at most 1: operands carry
// the first and the last (bf16, whose range lets a tiny one stay), the accumulators take those between as they pass a tile. Within
// a tile each pair is on its own, in fp32 (gradient_pairs.cuh), a thread a channel and tile; accumulators reach these threads
// through shared memory, in place of the operands. That leaves room to fetch only the states of the next chunk early.
#pragma once

#include "kernels/kda/cuda/gradient_pairs.cuh"

namespace longhaul::kda::cuda {

template <int D>
__global__ void __launch_bounds__(GradientShared<D>::kThreads, 1) gradients_pairwise_kernel(const GradientParams p) {
#if LH_KDA_SM90A
  using S = GradientShared<D>;
  using P = PairwiseShared<D>;
  unsigned char* shared = dynamic_shared();
  const uint32_t base = shared_address(shared);
  int thread = thread_index();
  const int64_t items = static_cast<int64_t>(p.tables.document_chunks[p.documents]) * p.in.heads;
  int64_t item = block_index();
  if (thread == 0) {
    mbarrier_init(base + S::kBarrier, 1);
    fence_barrier_init();
    if (item < items) {
      fetch_state_panels<D>(p, item, base);
    }
  }
  sync_block();
  for (uint32_t parity = 0; item < items; item += grid_blocks(), parity ^= 1U) {
    const ChunkEntry chunk = p.tables.chunks[item / p.in.heads];
    const int head = static_cast<int>(item % p.in.heads);
    forget(thread);
    {
      if (thread == 0) {
        fetch_row_panels<D>(p, item, base);
      }
      ValueGradients<D, Inputs::Ready> values;
      fetch_outputs<D>(p, chunk, head, base, thread);
      values.fetch(p, chunk, head, thread);
      Factors<D> factors;
      factors.fetch(p, item, thread);
      form_decayed<D>(p, chunk, head, factors, shared, thread);
      const float unit = Factors<D>::unit(shared);
      const bool must_rescale = Factors<D>::must_rescale(shared, unit, thread);
      copies_wait();
      Factors<D>::scale_outputs(shared, unit, thread);
      mbarrier_wait(base + S::kBarrier, parity);
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
    fence_async_proxy();
    sync_block();
    forget(thread);
    if (item + grid_blocks() < items) {
      if (thread == 0) {
        fetch_state_panels<D>(p, item + grid_blocks(), base);
      }
      prefetch_inputs<D, Inputs::Ready>(p, p.tables.chunks[(item + grid_blocks()) / p.in.heads],
                                        static_cast<int>((item + grid_blocks()) % p.in.heads), thread);
    }
    {
      const TilePlace at(thread);
      const ScoreTiles<D> tiles(at);
      const float unit = Factors<D>::unit(shared);
#pragma unroll
      for (int turn = 0; turn < ScoreTiles<D>::kTurns; ++turn) {
        const int column_tile = tiles.column_tile(turn);
        if (column_tile == at.tile) {
          put_pairs<D>(scores[turn], unit, shared, tiles.is_queries, at);
        } else if (column_tile < at.tile) {
          put_scores<D, Format::Bf16>(scores[turn], unit, tiles.is_queries, column_tile, shared, at);
        }
      }
      finish_state_sum<D>(shared, unit, thread);
      sync_block();

      // Products with the tiles below the diagonal.
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        acc_q[i] *= unit;
        acc_k[i] *= -unit;
        out[i] *= unit;
      }
      float col[16] = {};
      multiply_tiles<D, Format::Bf16, Diagonal::Apart>(acc_q, acc_k, col, shared, base, at);
      sync_block();
      put_sums<D>(acc_q, shared + P::kRowQ, at);
      put_sums<D>(acc_k, shared + P::kRowK, at);
      put_sums<D>(col, shared + P::kCol, at);
      put_sums<D>(out, shared + P::kOut, at);
    }
    forget(thread);
    ChannelGradients<D> gradients;
    gradients.fetch(p, chunk, head, thread / D, thread % D);
    sync_block();
    gradients.compute(p, chunk, head, shared, thread / D, thread % D);
    sync_block();
    gradients.write(p, chunk, head, shared, thread / D, thread % D);
    write_beta_gradients<D>(p, chunk, head, shared, thread);
    fence_async_proxy();
    sync_block();
  }
#endif
}

}  // namespace longhaul::kda::cuda
