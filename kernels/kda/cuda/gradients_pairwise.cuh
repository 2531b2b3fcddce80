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
      ValueGradients<D> values;
      fetch_outputs<D>(p, chunk, head, base, thread);
      values.fetch(p, chunk, head, thread);
      Factors<D> factors;
      factors.fetch(p, item, thread);
      form_decayed<D>(p, chunk, head, factors, shared, thread);
      copies_wait();
      mbarrier_wait(base + S::kBarrier, parity);
      sync_block();
      if constexpr (Factors<D>::kAny) {
        Factors<D>::apply(shared, thread);
        sync_block();
      }
      values.write(p, chunk, head, shared, thread);
    }
    sum_states<D>(shared, thread);

    // Products with the states. A warp has a tile of rows and 32 channels.
    forget(thread);
    float acc_q[16] = {};  // of row_q
    float acc_k[16] = {};  // of row_k
    float out[16] = {};
    constexpr int tile_warps = S::kParts / 2;  // for dA, and for dL, of a row tile
    constexpr int tile_turns = kTiles / tile_warps;
    float scores[tile_turns][8] = {};
    {
      const int lane = thread % 32;
      const int tile = thread / 32 % kTiles;
      const int part = thread / 32 / kTiles;
      const ColumnCursor rows = cursor_a({base, kChunk}, tile * kTile, lane);
      const Panel first_state{base + S::kStates, D};
      const uint32_t states[2] = {first_state.at(lane % 16, part * 32 + lane / 16 * 8),
                                  first_state.at(lane % 16, part * 32 + 16 + lane / 16 * 8)};
#pragma unroll
      for (int v = 0; v < D; v += 16) {
        uint32_t a[3][4];
        ldmatrix(a[0], rows.at(v) + S::kOutputs);
        ldmatrix(a[1], rows.at(v) + S::kResidualGradients);
        ldmatrix(a[2], rows.at(v) + S::kResiduals);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          uint32_t b[4];
          ldmatrix_transposed(b, states[n] + static_cast<uint32_t>(v * kSlabRowBytes));
          mma<kKept<D>>(acc_q + 8 * n, a[0], b[0], b[1]);
          mma<kKept<D>>(acc_q + 8 * n + 4, a[0], b[2], b[3]);
          mma<kKept<D>>(acc_k + 8 * n, a[1], b[0], b[1]);
          mma<kKept<D>>(acc_k + 8 * n + 4, a[1], b[2], b[3]);
          ldmatrix_transposed(b, states[n] + static_cast<uint32_t>(v * kSlabRowBytes + S::kStateGradients - S::kStates));
          mma<kKept<D>>(out + 8 * n, a[2], b[0], b[1]);
          mma<kKept<D>>(out + 8 * n + 4, a[2], b[2], b[3]);
        }
      }
      // Tiles of dA and dL.
      const bool is_queries = part < tile_warps;
      const auto of_rows = static_cast<uint32_t>(is_queries ? S::kOutputs : S::kResidualGradients);
#pragma unroll
      for (int turn = 0; turn < tile_turns; ++turn) {
        const int column_tile = part % tile_warps + turn * tile_warps;
        if (column_tile <= tile) {
          const ColumnCursor columns = cursor_b({base + S::kResiduals, kChunk}, column_tile * kTile, lane);
#pragma unroll
          for (int v = 0; v < D; v += 16) {
            uint32_t a[4];
            uint32_t b[4];
            ldmatrix(a, rows.at(v) + of_rows);
            ldmatrix(b, columns.at(v));
            mma<kKept<D>>(scores[turn], a, b[0], b[1]);
            mma<kKept<D>>(scores[turn] + 4, a, b[2], b[3]);
          }
        }
      }
    }
    fence_async_proxy();
    sync_block();
    forget(thread);
    if (item + grid_blocks() < items) {
      if (thread == 0) {
        fetch_state_panels<D>(p, item + grid_blocks(), base);
      }
      prefetch_inputs<D>(p, p.tables.chunks[(item + grid_blocks()) / p.in.heads],
                         static_cast<int>((item + grid_blocks()) % p.in.heads), thread);
    }
    {
      const int lane = thread % 32;
      const int tile = thread / 32 % kTiles;
      const int part = thread / 32 / kTiles;
      const int channel = part * 32;
      const float unit = Factors<D>::unit(shared);
      const bool is_queries = part < tile_warps;
#pragma unroll
      for (int turn = 0; turn < tile_turns; ++turn) {
        const int column_tile = part % tile_warps + turn * tile_warps;
        if (column_tile <= tile) {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            scores[turn][i] *= unit;
          }
          if (column_tile == tile) {
            put_pairs<D>(scores[turn], shared, is_queries, tile, lane);
          } else {
            put_scores<D>(scores[turn], shared, is_queries, tile, column_tile, lane);
          }
        }
      }
      if (thread < D) {
        const auto* inner = reinterpret_cast<const float*>(shared + S::kInner) + thread;
        const float decay = reinterpret_cast<const float*>(shared + S::kEnds)[thread] *
                            reinterpret_cast<const float*>(shared + S::kSteps)[thread];
        float sum = 0.0F;
#pragma unroll
        for (int i = 0; i < S::kGroups; ++i) {
          sum += inner[i * D];
        }
        reinterpret_cast<float*>(shared + S::kStateSum)[thread] = sum * (decay * unit);
      }
      sync_block();

      // Products with the tiles below the diagonal: row_q and row_k, to which the state comes as if from a tile before; then col.
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        acc_q[i] *= unit;
        acc_k[i] *= -unit;
        out[i] *= unit;
      }
      const Panel columns{base + S::kColumns, kChunk};
      for (int j = 0; j < tile; ++j) {
        pass_tile<D>(acc_q, shared, j, channel, lane);
        pass_tile<D>(acc_k, shared, j, channel, lane);
        add_scores<D, false>(acc_q, base, true, tile, j, columns, channel, lane);
        add_scores<D, false>(acc_k, base, false, tile, j, columns, channel, lane);
      }
      float col[16] = {};
      for (int i = kTiles - 1; i > tile; --i) {
        if (i < kTiles - 1) {
          pass_tile<D>(col, shared, i, channel, lane);
        }
        add_scores<D, true>(col, base, true, i, tile, {base + S::kQueries, kChunk}, channel, lane);
        add_scores<D, true>(col, base, false, i, tile, {base + S::kKeys, kChunk}, channel, lane);
      }
      sync_block();
      put_sums<D>(acc_q, shared + P::kRowQ, tile, channel, lane);
      put_sums<D>(acc_k, shared + P::kRowK, tile, channel, lane);
      put_sums<D>(col, shared + P::kCol, tile, channel, lane);
      put_sums<D>(out, shared + P::kOut, tile, channel, lane);
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
