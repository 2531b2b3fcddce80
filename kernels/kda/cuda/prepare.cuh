// Everything about a chunk that does not need the state, one block a chunk and head: decayed keys and queries, the score
// matrices L and A, and the inverse of I + L; written as a ChunkImage (Kimi Linear, arXiv:2510.26692, eq. 6-9).
//
// A warp owns 16 rows of 64 channels (prepare_layout.cuh) from the copy of its inputs to the copy of its results: both use the
// same shared memory, and registers hold the decayed keys and queries in between. Warps meet four times a chunk: when the decays
// of all tiles are known, when the operands of the tiles below the diagonal are, when the first ones have finished the
// diagonal tiles, and when nobody reads the operands any more. The inverse of I + L is formed beside the others' work.
#pragma once

#include "kernels/kda/cuda/prepare_inputs.cuh"
#include "kernels/kda/cuda/prepare_inverse.cuh"
#include "kernels/kda/cuda/prepare_layout.cuh"
#include "kernels/kda/cuda/prepare_scores.cuh"

namespace longhaul::kda::cuda {

// A block takes chunk and head `block`, then `block + blocks`, and so on.
struct PrepareTurn {
  int chunk;
  int head;

  [[nodiscard]] __device__ __forceinline__ int64_t index(int heads) const { return static_cast<int64_t>(chunk) * heads + head; }
  __device__ __forceinline__ void advance(int step_chunks, int heads) {
    chunk += step_chunks;
    head += static_cast<int>(grid_blocks()) - step_chunks * heads;
    if (head >= heads) {
      head -= heads;
      ++chunk;
    }
  }
};
// The chunk's entry, or the last one's beyond the end: no condition stands before the load.
[[nodiscard]] __device__ __forceinline__ PrepareItem prepare_item(const PrepareParams& p, const PrepareTurn& turn, int chunks) {
  const ChunkEntry chunk = p.tables.chunks[min(turn.chunk, chunks - 1)];
  return {static_cast<int>(chunk.first_token), chunk.rows, turn.head};
}

// Sums of the log-decays of the part's fragments along its tile, and the decays of the whole tile to shared memory. On the way,
// when the first group of inputs has arrived and the last chunk's results have probably left, `fetch_rows` asks for the other
// group; `fetch_next` for the next chunk's first group when this one's is no longer needed.
template <int K, Inputs kInputs, class FetchRows, class FetchNext>
__device__ __forceinline__ void sum_decays(float (&c)[kFragments][8], const PrepareParams& p, const PrepareItem& item, float a_log,
                                           unsigned char* shared, uint32_t base, const Part<K>& part, FetchRows&& fetch_rows,
                                           FetchNext&& fetch_next) {
  using S = PrepareShared<K>;
#pragma unroll
  for (int b = 0; b < kFragments; ++b) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      c[b][i] = 0.0F;
    }
  }
  copies_wait_for<0>();
  sync_warp();
  float x[8];
  const Triangle triangle(reinterpret_cast<const uint4*>(shared + S::kTriangle)[part.lane]);
  if constexpr (kInputs == Inputs::Raw) {
    const GateCurve curve(p.in, a_log);
    const int rows = item.rows - part.tile() * kTile;
    if (rows < kTile) {
      mask_gates(shared, part, rows);
      sync_warp();
    }
#pragma unroll
    for (int b = 0; b < kFragments; ++b) {
      if (b == 1) {
        fetch_rows();
      }
      read_gates<K>(x, curve, shared, base, part, b);
      add_sums(c[b], x, triangle);
    }
    sync_warp();
    fetch_next();
    copies_wait_for<1>();
    sync_warp();
  } else {
#pragma unroll
    for (int step = 0; step < kFragments; ++step) {
      const int b = (step + 2) % kFragments;
      read_decays<K>(x, shared, part, b);
      add_sums(c[b], x, triangle);
      if (step == 0) {
        fetch_rows();
      }
      if (step == 1) {
        sync_warp();
        fetch_next();
        copies_wait_for<2>();  // keys and queries may come later
        sync_warp();
      }
    }
  }
  if (part.lane >= 28) {
    unsigned char* totals = shared + S::kTotals + part.tile() * K * 4;
#pragma unroll
    for (int b = 0; b < kFragments; ++b) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        *reinterpret_cast<float2*>(totals + (part.channel(b) + 8 * h) * 4) =
            make_float2(exp2_fast(c[b][4 * h + 2]), exp2_fast(c[b][4 * h + 3]));
      }
    }
  }
}

// The part's results to the image, in the background.
template <int K>
__device__ __forceinline__ void send_part(unsigned char* image, uint32_t base, const Part<K>& part) {
  using S = PrepareShared<K>;
  using I = ChunkImage<K>;
  fence_async_proxy();
  sync_warp();
  if (part.lane == 0) {
    const uint32_t at = part.offset();
    bulk_store(image + I::kQueries + at, base + S::kQueries + at, S::kPiece);
    bulk_store(image + I::kKeys + at, base + S::kKeys + at, S::kPiece);
    bulk_store(image + I::kLeaving + at, base + S::kLeaving + at, S::kPiece);
    bulk_store_commit();
  }
}

template <int K, Inputs kInputs>
__global__ void __launch_bounds__(PrepareShared<K>::kThreads, K == 128 ? 2 : 3) prepare_kernel(const PrepareParams p) {
#if LH_KDA_SM90A
  using S = PrepareShared<K>;
  using I = ChunkImage<K>;
  constexpr int early_barrier = 1;
  constexpr int inverse_barrier = 2;
  int thread = thread_index();
  unsigned char* shared = dynamic_shared();
  const uint32_t base = shared_address(shared);
  const int heads = p.in.heads;
  const int chunks = p.tables.document_chunks[p.documents];
  const int step_chunks = static_cast<int>(grid_blocks()) / heads;
  PrepareTurn turn{block_index() / heads, block_index() % heads};
  if (turn.chunk >= chunks) {
    return;
  }
  PrepareTurn next_turn = turn;
  next_turn.advance(step_chunks, heads);
  PrepareItem item = prepare_item(p, turn, chunks);
  // Loaded a turn before it is needed.
  PrepareItem next = prepare_item(p, next_turn, chunks);
  uint32_t beta = 0;
  float a_log = 0.0F;
  {
    const Part<K> part(thread);
    fetch_gates<K, kInputs>(p.in, item, base, part);
    prefetch_rows<K, kInputs>(p.in, item, part);
    for (int at = thread * 16; at < 2 * S::kSquare; at += S::kThreads * 16) {
      *reinterpret_cast<uint4*>(shared + S::kSolve + at) = make_uint4(0, 0, 0, 0);
    }
    if (thread < 32) {
      Triangle::write(reinterpret_cast<uint4*>(shared + S::kTriangle), thread);
    }
    if (thread < kChunk) {
      beta = fetch_beta<kInputs>(p.in, item, thread);
    }
    if constexpr (kInputs == Inputs::Raw) {
      a_log = GateCurve::fetch_a_log(p.in, item.head);
    }
    sync_block();
  }
  while (true) {
    // Addresses are cheap to form anew, but not to keep in registers from one chunk to the next.
    forget(thread);
    const Part<K> part(thread);
    unsigned char* image = p.images + turn.index(heads) * I::kBytes;
    const bool has_next = next_turn.chunk < chunks;
    turn = next_turn;
    next_turn.advance(step_chunks, heads);
    const PrepareItem after_next = prepare_item(p, next_turn, chunks);

    float c[kFragments][8];
    sum_decays<K, kInputs>(
        c, p, item, a_log, shared, base, part,
        [&] {
          if (part.lane == 0) {
            bulk_store_wait();
          }
          sync_warp();
          fetch_rows<K, kInputs>(p.in, item, base, part);
        },
        [&] {
          if (has_next) {
            fetch_gates<K, kInputs>(p.in, next, base, part);
          } else {
            copies_commit();
          }
        });
    if constexpr (kInputs == Inputs::Raw) {
      a_log = GateCurve::fetch_a_log(p.in, next.head);
    }
    if constexpr (kInputs == Inputs::Raw) {
      sum_squares<K>(shared, base, part);
    }
    if (thread < kChunk) {
      const float value = beta_of<kInputs>(beta);
      reinterpret_cast<float*>(shared + S::kBeta)[thread] = value;
      reinterpret_cast<float*>(image + I::kBeta)[thread] = value;
      beta = fetch_beta<kInputs>(p.in, next, thread);
    }
    sync_block();

    if constexpr (kInputs == Inputs::Ready) {
      copies_wait_for<1>();
      sync_warp();
    }
    prefetch_rows<K, kInputs>(p.in, next, part);
    write_factors<K>(shared, image + I::kDecay, p.in.scale, thread);
    Decayed decayed;
    DiagonalSums sums;
    {
      float q_norm[2];
      float k_norm[2];
      read_norms<K, kInputs>(q_norm, k_norm, shared, part);
#pragma unroll
      for (int b = 0; b < kFragments; ++b) {
        decay_fragment<K, kInputs>(decayed, sums, c[b], q_norm, k_norm, shared, base, part, b);
      }
    }
    if (part.slab() > 0) {
      hand_on_sums(sums, shared, part);
    }
    sync_block();

    if (part.slab() == 0) {
      if constexpr (S::kSlabs > 1) {
        add_handed_on(sums, shared, part);
      }
      finish_diagonal(sums, shared, base, p.in.scale, part);
      sync_named(early_barrier, 32 * kTiles);
    }
    if (part.warp < kDiagonalThreads / 32) {
      invert_diagonal<S>(shared, thread / kTile, thread % kTile);
    } else {
      for (int pair = part.warp - 2; pair < 6; pair += S::kWarps - 2) {
        lower_pair<K>(shared, base, p.in.scale, pair, part.lane);
      }
    }
    fence_async_proxy();
    sync_block();

    write_decayed(decayed, shared, base, part);
    send_part(image, base, part);
    const int worker = part.warp - (S::kWarps - kInvertWarps);
    if (worker >= 0) {
      invert_lower(base, part, worker, inverse_barrier);
      fence_async_proxy();
      sync_named(inverse_barrier, 32 * kInvertWarps);
      if (worker == 0 && part.lane == 0) {
        bulk_store(image + I::kSolve, base + S::kSolve, 2 * S::kSquare);
        bulk_store_commit();
      }
    }
    if (!has_next) {
      if (part.lane == 0) {
        bulk_store_wait();
      }
      return;
    }
    item = next;
    next = after_next;
  }
#endif
}

}  // namespace longhaul::kda::cuda
