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

// What a group of warps does in a turn: a chunk and head, and the place of its image.
struct PrepareTurn {
  PrepareItem item;
  int64_t image;
  bool is_valid;
  int time = 0;  // see flow.cuh
  int walker = 0;
};

// All chunks and heads into their own images: a block takes `block`, then `block + blocks`, and so on.
class AllTurns {
 public:
  static constexpr bool kPublishes = false;

  explicit __device__ __forceinline__ AllTurns(const PrepareParams& p)
      : p_(p),
        chunks_(p.tables.document_chunks[p.documents]),
        chunk_(block_index() / p.in.heads),
        head_(block_index() % p.in.heads),
        step_(static_cast<int>(grid_blocks()) / p.in.heads) {}

  // Beyond the end the last chunk again: no condition stands before the load.
  [[nodiscard]] __device__ __forceinline__ PrepareTurn next() {
    const int in_order = min(chunk_, max(chunks_ - 1, 0));
    const int index = p_.backwards ? max(chunks_ - 1, 0) - in_order : in_order;
    const ChunkEntry chunk = p_.tables.chunks[index];
    const int heads = p_.in.heads;
    const PrepareTurn turn{{static_cast<int>(chunk.first_token), chunk.rows, head_},
                           static_cast<int64_t>(index) * heads + head_,
                           chunk_ < chunks_};
    chunk_ += step_;
    head_ += static_cast<int>(grid_blocks()) - step_ * heads;
    if (head_ >= heads) {
      head_ -= heads;
      ++chunk_;
    }
    return turn;
  }
  __device__ __forceinline__ void wait_for_image(const PrepareTurn&) const {}
  __device__ __forceinline__ void publish(const PrepareTurn&) const {}

 private:
  const PrepareParams& p_;
  int chunks_;
  int chunk_;
  int head_;
  int step_;  // chunks that the blocks make up
};

// The warps that prepare a chunk together: their place in the block's shared memory, their named barriers.
template <int K>
struct PrepareTeam {
  int index;

  static constexpr int64_t kSharedBytes = round_up_to(PrepareShared<K>::kBytes, 1024);
  [[nodiscard]] __device__ __forceinline__ unsigned char* shared() const { return dynamic_shared() + index * kSharedBytes; }
  [[nodiscard]] __device__ __forceinline__ int barrier(int which) const { return 1 + 3 * index + which; }
  __device__ __forceinline__ void sync() const { sync_named(barrier(0), PrepareShared<K>::kThreads); }
};

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

template <int K, Inputs kInputs, class Turns>
__device__ __forceinline__ void prepare_chunks(const PrepareParams& p, Turns turns, PrepareTeam<K> team, int thread) {
  using S = PrepareShared<K>;
  using I = ChunkImage<K>;
  unsigned char* shared = team.shared();
  const uint32_t base = shared_address(shared);
  PrepareTurn now = turns.next();
  if (!now.is_valid) {
    return;
  }
  // Loaded a turn before it is needed.
  PrepareTurn next = turns.next();
  PrepareTurn before{};
  uint32_t beta = 0;
  float a_log = 0.0F;
  {
    const Part<K> part(thread);
    fetch_gates<K, kInputs>(p.in, now.item, base, part);
    prefetch_rows<K, kInputs>(p.in, now.item, part);
    for (int at = thread * 16; at < 2 * S::kSquare; at += S::kThreads * 16) {
      *reinterpret_cast<uint4*>(shared + S::kSolve + at) = make_uint4(0, 0, 0, 0);
    }
    if (thread < 32) {
      Triangle::write(reinterpret_cast<uint4*>(shared + S::kTriangle), thread);
    }
    if (thread < kChunk) {
      beta = fetch_beta<kInputs>(p.in, now.item, thread);
    }
    if constexpr (kInputs == Inputs::Raw) {
      a_log = GateCurve::fetch_a_log(p.in, now.item.head);
    }
    team.sync();
  }
  while (true) {
    // Addresses are cheap to form anew, but not to keep in registers from one chunk to the next.
    forget(thread);
    const Part<K> part(thread);
    unsigned char* image = p.images + now.image * I::kBytes;
    const PrepareTurn after_next = turns.next();

    float c[kFragments][8];
    sum_decays<K, kInputs>(
        c, p, now.item, a_log, shared, base, part,
        [&] {
          if (part.lane == 0) {
            if constexpr (Turns::kPublishes) {
              bulk_store_done();
              fence_all_proxies();
            } else {
              bulk_store_wait();
            }
          }
          sync_warp();
          fetch_rows<K, kInputs>(p.in, now.item, base, part);
        },
        [&] {
          if (next.is_valid) {
            fetch_gates<K, kInputs>(p.in, next.item, base, part);
          } else {
            copies_commit();
          }
        });
    if constexpr (kInputs == Inputs::Raw) {
      a_log = GateCurve::fetch_a_log(p.in, next.item.head);
      sum_squares<K>(shared, base, part);
    }
    if (thread < kChunk) {
      reinterpret_cast<float*>(shared + S::kBeta)[thread] = beta_of<kInputs>(beta);
      beta = fetch_beta<kInputs>(p.in, next.item, thread);
    }
    team.sync();

    if (thread == 0) {
      // In this order: the image may be in use until others have got the one before.
      if (before.is_valid) {
        turns.publish(before);
      }
      turns.wait_for_image(now);
    }
    if constexpr (kInputs == Inputs::Ready) {
      copies_wait_for<1>();
      sync_warp();
    }
    prefetch_rows<K, kInputs>(p.in, next.item, part);
    write_factors<K>(shared, p.in.scale, thread);
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
    team.sync();

    if (thread >= S::kThreads - kChunk) {
      write_rest<K>(image, shared, thread - (S::kThreads - kChunk));
    }
    if (part.slab() == 0) {
      if constexpr (S::kSlabs > 1) {
        add_handed_on(sums, shared, part);
      }
      finish_diagonal(sums, shared, base, p.in.scale, part);
      sync_named(team.barrier(1), 32 * kTiles);
    }
    if (part.warp < kDiagonalThreads / 32) {
      invert_diagonal<S>(shared, thread / kTile, thread % kTile);
    } else {
      for (int pair = part.warp - 2; pair < 6; pair += S::kWarps - 2) {
        lower_pair<K>(shared, base, p.in.scale, pair, part.lane);
      }
    }
    fence_async_proxy();
    team.sync();

    write_decayed(decayed, shared, base, part);
    send_part(image, base, part);
    const int worker = part.warp - (S::kWarps - kInvertWarps);
    if (worker >= 0) {
      invert_lower(base, part, worker, team.barrier(2));
      fence_async_proxy();
      sync_named(team.barrier(2), 32 * kInvertWarps);
      if (worker == 0 && part.lane == 0) {
        bulk_store(image + I::kSolve, base + S::kSolve, 2 * S::kSquare);
        bulk_store_commit();
      }
    }
    if (!next.is_valid) {
      break;
    }
    before = now;
    now = next;
    next = after_next;
  }
  if (thread % 32 == 0) {
    bulk_store_done();
    fence_all_proxies();
  }
  if constexpr (Turns::kPublishes) {
    team.sync();
    if (thread == 0) {
      turns.publish(now);
    }
  }
}

template <int K, Inputs kInputs>
__global__ void __launch_bounds__(PrepareShared<K>::kThreads, K == 128 ? 2 : 3) prepare_kernel(const PrepareParams p) {
#if LH_KDA_SM90A
  prepare_chunks<K, kInputs>(p, AllTurns(p), PrepareTeam<K>{0}, thread_index());
#endif
}

}  // namespace longhaul::kda::cuda
