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
// there. Operands carry 2^{F_i} and 2^{-F_j} (row 0 of a tile is the anchor, which lies in the past), each times 2^{+-54}
// so that both stay in the middle of the range of bf16; the accumulators take the decay between tiles as they pass them.
// dA and dL go into products as two bf16 values each, the second what the rounding of the first left.
//
// A warp has 16 rows and 32 channels. Shared memory of the states is free for the next chunk's as soon as the products with
// them are done, and fills while the rest is computed.
#pragma once

#include "kernels/kda/cuda/gradient_operands.cuh"
#include "kernels/kda/cuda/gradient_parts.cuh"

namespace longhaul::kda::cuda {

template <int D>
__global__ void __launch_bounds__(GradientShared<D>::kThreads, 1) gradients_kernel(const GradientParams p) {
#if LH_KDA_SM90A
  using S = GradientShared<D>;
  unsigned char* shared = dynamic_shared();
  const uint32_t base = shared_address(shared);
  int thread = thread_index();
  const int64_t items = static_cast<int64_t>(p.tables.document_chunks[p.documents]) * p.in.heads;
  int64_t item = block_index();
  if (thread == 0) {
    mbarrier_init(base + S::kBarrier, 1);
    fence_barrier_init();
    if (item < items) {
      fetch_states<D>(p, item, base);
    }
  }
  sync_block();
  for (uint32_t parity = 0; item < items; item += grid_blocks(), parity ^= 1U) {
    const ChunkEntry chunk = p.tables.chunks[item / p.in.heads];
    const int head = static_cast<int>(item % p.in.heads);
    // Addresses are cheaper to form anew than to keep.
    forget(thread);
    {
      ValueGradients<D> values;
      fetch_outputs<D>(p, chunk, head, base, thread);
      values.fetch(p, chunk, head, thread);
      Factors<D> factors;
      factors.fetch(p, item, thread);
      form_operands<D>(p, chunk, head, factors, shared, thread);
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
    float acc_q[16] = {};  // of row_q, then dG
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
      const uint32_t states[2] = {first_state.at(lane % 16, part * 32 + lane / 16 * 8), first_state.at(lane % 16, part * 32 + 16 + lane / 16 * 8)};
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
    sync_block();
    forget(thread);
    const int lane = thread % 32;
    const int tile = thread / 32 % kTiles;
    const int part = thread / 32 / kTiles;
    const int channel = part * 32;
    if (item + grid_blocks() < items) {
      if (thread == 0) {
        fetch_states<D>(p, item + grid_blocks(), base);
      }
      prefetch_inputs<D>(p, p.tables.chunks[(item + grid_blocks()) / p.in.heads],
                         static_cast<int>((item + grid_blocks()) % p.in.heads), thread);
    }
    const float unit = Factors<D>::unit(shared);
#pragma unroll
    for (int turn = 0; turn < tile_turns; ++turn) {
      const int column_tile = part % tile_warps + turn * tile_warps;
      if (column_tile <= tile) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          scores[turn][i] *= unit;
        }
        put_scores<D>(scores[turn], shared, part < tile_warps, tile, column_tile, lane);
      }
    }
    if (thread < D) {
      const auto* inner = reinterpret_cast<const float*>(shared + S::kInner) + thread;
      const float decay = kDown * reinterpret_cast<const float*>(shared + S::kEnds)[thread] *
                          reinterpret_cast<const float*>(shared + S::kSteps)[thread];
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < S::kGroups; ++i) {
        sum += inner[i * D];
      }
      reinterpret_cast<float*>(shared + S::kStateSum)[thread] = sum * (decay * unit);
    }
    // Rows g and g + 8 of the tile, channels 8 n + 2 t, 8 n + 2 t + 1 of the part.
    const int lane_channel = channel + lane % 4 * 2;
    uint32_t q[8];
    uint32_t k[8];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t token = chunk.first_token + min(tile * kTile + lane / 4 + 8 * half, chunk.rows - 1);
      const uint16_t* q_at = p.in.q + token * p.in.q_stride + head * D + lane_channel;
      const uint16_t* k_at = p.in.k + token * p.in.k_stride + head * D + lane_channel;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        q[4 * half + n] = *reinterpret_cast<const uint32_t*>(q_at + 8 * n);
        k[4 * half + n] = *reinterpret_cast<const uint32_t*>(k_at + 8 * n);
      }
    }
    sync_block();

    // Products with the tiles: row_q and row_k, to which the state comes as if from a tile before; then col.
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      acc_q[i] *= unit * kDown;
      acc_k[i] *= unit * -kDown;
      out[i] *= unit;
    }
    const Panel columns{base + S::kColumns, kChunk};
    for (int j = 0; j <= tile; ++j) {
      if (j == 0) {
        pass_tile<D>(acc_q, shared, 0, channel, lane);
        pass_tile<D>(acc_k, shared, 0, channel, lane);
      }
      add_scores<D, false>(acc_q, base, true, tile, j, columns, channel, lane);
      add_scores<D, false>(acc_k, base, false, tile, j, columns, channel, lane);
      if (j < tile) {
        pass_tile<D>(acc_q, shared, j + 1, channel, lane);
        pass_tile<D>(acc_k, shared, j + 1, channel, lane);
      }
    }
    float col[16] = {};
    for (int i = kTiles - 1; i >= tile; --i) {
      if (i < kTiles - 1) {
        pass_tile<D>(col, shared, i + 1, channel, lane);
      }
      add_scores<D, true>(col, base, true, i, tile, {base + S::kQueries, kChunk}, channel, lane);
      add_scores<D, true>(col, base, false, i, tile, {base + S::kKeys, kChunk}, channel, lane);
    }

    float dbeta[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = tile * kTile + lane / 4 + 8 * half;
      const bool inside = row < chunk.rows;
      const float beta = reinterpret_cast<const float*>(shared + S::kBeta)[row];
      const float diagonal = reinterpret_cast<const float*>(shared + S::kDiagonal)[row];
      const int64_t at = ((chunk.first_token + row) * p.in.heads + head) * D + lane_channel;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float2 f = *reinterpret_cast<const float2*>(shared + S::kDecays + row * S::kDecayRow + (lane_channel + 8 * n) * 4);
        const float2 end = *reinterpret_cast<const float2*>(shared + S::kEnds + (tile * D + lane_channel + 8 * n) * 4);
        const float query[2] = {p.in.scale * bf16_low(q[4 * half + n]), p.in.scale * bf16_high(q[4 * half + n])};
        const float key[2] = {bf16_low(k[4 * half + n]), bf16_high(k[4 * half + n])};
        const uint32_t at_panel = panel_offset(row, lane_channel + 8 * n, kChunk);
        const uint32_t rounded[3] = {*reinterpret_cast<const uint32_t*>(shared + S::kQueries + at_panel),
                                     *reinterpret_cast<const uint32_t*>(shared + S::kKeys + at_panel),
                                     *reinterpret_cast<const uint32_t*>(shared + S::kColumns + at_panel)};
        float dq[2];
        float dk[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int i = 4 * n + 2 * half + j;
          const float from_first = j == 0 ? f.x : f.y;
          const float up = kUp * from_first;
          const float down = reciprocal_fast(up);
          const float row_q = up * acc_q[i];
          const float row_k = up * acc_k[i];
          const float col_k = down * col[i];
          const float leaving = down * (j == 0 ? end.x : end.y) * out[i];
          dq[j] = p.in.scale * (row_q + diagonal * key[j]);
          dk[j] = beta * row_k + col_k + (leaving + diagonal * query[j]);
          dbeta[half] += key[j] * row_k;
          // With the operands as the products had them, so that a pair's two halves cancel where both are in a sum.
          const auto operand = [&](int which) { return j == 0 ? bf16_low(rounded[which]) : bf16_high(rounded[which]); };
          acc_q[i] = operand(0) * acc_q[i] + (operand(1) * acc_k[i] - operand(2) * col[i]);
          out[i] = key[j] * leaving;
        }
        if (inside) {
          *reinterpret_cast<float2*>(p.dq + at + 8 * n) = make_float2(dq[0], dq[1]);
          *reinterpret_cast<float2*>(p.dk + at + 8 * n) = make_float2(dk[0], dk[1]);
        } else {
          acc_q[4 * n + 2 * half] = 0.0F;
          acc_q[4 * n + 2 * half + 1] = 0.0F;
          out[4 * n + 2 * half] = 0.0F;
          out[4 * n + 2 * half + 1] = 0.0F;
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      dbeta[half] += shuffle_xor(dbeta[half], 1);
      dbeta[half] += shuffle_xor(dbeta[half], 2);
      if (lane % 4 == 0) {
        reinterpret_cast<float*>(shared + S::kBetaSums)[(1 + part) * kChunk + tile * kTile + lane / 4 + 8 * half] = dbeta[half];
      }
    }
    auto* sums = reinterpret_cast<float*>(shared + S::kSums);
    sum_rows<true>(acc_q, sums + tile * D + lane_channel, lane);
    sum_rows<false>(out, sums + (kTiles + tile) * D + lane_channel, lane);
    sync_block();
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int c = lane_channel + 8 * n;
      float2 add = *reinterpret_cast<const float2*>(shared + S::kStateSum + c * 4);
      for (int t = 0; t < kTiles; ++t) {
        if (t != tile) {
          const float2 other = *reinterpret_cast<const float2*>(sums + (t < tile ? kTiles + t : t) * D + c);
          add.x += other.x;
          add.y += other.y;
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = tile * kTile + lane / 4 + 8 * half;
        const int i = 4 * n + 2 * half;
        if (row < chunk.rows) {
          const int64_t at = ((chunk.first_token + row) * p.in.heads + head) * D + c;
          *reinterpret_cast<float2*>(p.dg + at) = make_float2(acc_q[i] + out[i] + add.x, acc_q[i + 1] + out[i + 1] + add.y);
        }
      }
    }
    if (thread < chunk.rows) {
      const auto* parts = reinterpret_cast<const float*>(shared + S::kBetaSums) + thread;
      float sum = parts[0];
#pragma unroll
      for (int i = 1; i <= S::kParts; ++i) {
        sum += parts[i * kChunk];
      }
      p.dbeta[(chunk.first_token + thread) * p.in.heads + head] = sum;
    }
    sync_block();
  }
#endif
}

}  // namespace longhaul::kda::cuda
