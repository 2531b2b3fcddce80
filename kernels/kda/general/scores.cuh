// The score matrices of a chunk and the inverse of I + L, in shared memory (kernels/kda/chunk_scores.h has the formulas):
//   L_ij = beta_i sum_c k_ic k_jc E_ij[c]   (i > j)        A_ij = sum_c scale q_ic k_jc E_ij[c]   (i >= j)
// Pairs of tiles below the diagonal take the decay E_ij as three factors that meet at the first row of the row tile.
#pragma once

#include "kernels/kda/general/decay.cuh"
#include "kernels/kda/general/products.cuh"

namespace longhaul::cuda::kda_general {

// Shared memory of a block. Panels are [64, kPitch]; those of the scores follow once the loop over channels is done.
enum Panel : int { kQFirst, kKFirst, kKEnd, kDiagonal, kQ, kK };  // kDiagonal: 1 / from_first times k, or alpha
enum ScorePanel : int { kL, kA, kInverse, kWork };
constexpr int kPairs = 6;                                         // tile pairs below the diagonal

struct ImageSmall {
  TileDecay decay;
  float between[kPairs][kKeys];
  float beta[kChunk];
};

constexpr int64_t image_shared_bytes(KdaTiles tiles) {
  return static_cast<int64_t>(sizeof(float)) * kPanel * (tiles == KdaTiles::Dense ? 4 : 6) + static_cast<int64_t>(sizeof(ImageSmall));
}

// Tile pairs in the order in which groups of 64 threads take them: (1,0) (2,1) (3,2) (2,0) | (3,1) (3,0).
__device__ inline int row_tile(int pair) { return 0x332321 >> (4 * pair) & 0xf; }
__device__ inline int column_tile(int pair) { return 0x010210 >> (4 * pair) & 0xf; }

// A thread's part of a score tile: rows r and r + 8, columns c and c + 8.
struct ScorePart {
  float l[2][2] = {};
  float a[2][2] = {};

  __device__ static int row() { return static_cast<int>(threadIdx.x) % 64 / 8; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % 8; }

  // += rows of k_first and q_first with rows of `keys`, each key channel times its factor.
  template <bool kFactors>
  __device__ void add(const float* k_first, const float* q_first, const float* keys, const float* factors) {
    k_first += row() * kPitch;
    q_first += row() * kPitch;
    keys += column() * kPitch;
#pragma unroll 2
    for (int p = 0; p < kKeys; p += 4) {
      float4 right[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        right[j] = load4(keys + 8 * j * kPitch + p);
        if constexpr (kFactors) {
          const float4 f = load4(factors + p);
          right[j] = make_float4(right[j].x * f.x, right[j].y * f.y, right[j].z * f.z, right[j].w * f.w);
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float4 left_k = load4(k_first + 8 * r * kPitch + p), left_q = load4(q_first + 8 * r * kPitch + p);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          l[r][j] = add_dot(left_k, right[j], l[r][j]);
          a[r][j] = add_dot(left_q, right[j], a[r][j]);
        }
      }
    }
  }
  // To the panels at tile (i, j); what lies above the diagonal stays zero.
  __device__ void store(float* panel_l, float* panel_a, int i, int j, const float* beta) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int row_at = kTile * i + row() + 8 * r, column_at = kTile * j + column() + 8 * c;
        panel_l[row_at * kPitch + column_at] = row_at > column_at ? beta[row_at] * l[r][c] : 0.0f;
        panel_a[row_at * kPitch + column_at] = row_at >= column_at ? a[r][c] : 0.0f;
      }
    }
  }
};

// A diagonal tile with unbounded gates: for a column j the key decays from row to row. A thread has one column and every
// fourth group of four channels.
struct PairwisePart {
  float l[kTile] = {};
  float a[kTile] = {};

  __device__ static int tile() { return static_cast<int>(threadIdx.x) / 64; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % 64 / 4; }
  __device__ static int part() { return static_cast<int>(threadIdx.x) % 4; }

  __device__ void add(const float* panels) {
    const int begin = tile() * kTile * kPitch;
    const float *q = panels + kQ * kPanel + begin, *k = panels + kK * kPanel + begin, *alpha = panels + kDiagonal * kPanel + begin;
    for (int p = 4 * part(); p < kKeys; p += 16) {
      float4 decayed = load4(k + column() * kPitch + p);
#pragma unroll
      for (int i = 0; i < kTile; ++i) {
        if (i < column()) {
          continue;
        }
        if (i > column()) {
          const float4 f = load4(alpha + i * kPitch + p);
          decayed = make_float4(decayed.x * f.x, decayed.y * f.y, decayed.z * f.z, decayed.w * f.w);
        }
        l[i] = add_dot(load4(k + i * kPitch + p), decayed, l[i]);
        a[i] = add_dot(load4(q + i * kPitch + p), decayed, a[i]);
      }
    }
  }
  __device__ void store(float* panel_l, float* panel_a, const float* beta) {
    const int j = tile() * kTile + column();
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      const int row = tile() * kTile + i;
      l[i] += __shfl_xor_sync(0xffffffffu, l[i], 1);
      l[i] += __shfl_xor_sync(0xffffffffu, l[i], 2);
      a[i] += __shfl_xor_sync(0xffffffffu, a[i], 1);
      a[i] += __shfl_xor_sync(0xffffffffu, a[i], 2);
      if (part() == 0) {
        panel_l[row * kPitch + j] = row > j ? beta[row] * l[i] : 0.0f;
        panel_a[row * kPitch + j] = row >= j ? a[i] : 0.0f;
      }
    }
  }
};

// T = (I + L)^-1 by substitution inside the tiles on the diagonal, and products below them. Never a Neumann series: its
// powers grow like binomials when keys are nearly parallel and beta is near 1. `inverse` must be zero on entry.
__device__ inline void invert(const float* l, float* inverse, float* work) {
  const int tid = static_cast<int>(threadIdx.x);
  if (tid < kChunk) {
    const int tile = tid / kTile, j = tid % kTile;
    const float* rows = l + tile * kTile * (kPitch + 1);
    float x[kTile];
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      float sum = i == j ? 1.0f : 0.0f;
#pragma unroll
      for (int m = 0; m < i; ++m) {
        sum = fmaf(-rows[i * kPitch + m], x[m], sum);
      }
      x[i] = i >= j ? sum : 0.0f;
      inverse[(tile * kTile + i) * kPitch + tile * kTile + j] = x[i];
    }
  }
  __syncthreads();
  const int r = tid / kTile, c = tid % kTile;
  for (int i = 1; i < 4; ++i) {
    const int row = i * kTile + r;
    for (int j = 0; j < i; ++j) {  // work = L T, for the tiles of this row
      const int column = j * kTile + c;
      float sum = 0;
      for (int m = j * kTile; m < i * kTile; ++m) {
        sum = fmaf(l[row * kPitch + m], inverse[m * kPitch + column], sum);
      }
      work[r * kPitch + column] = sum;
    }
    __syncthreads();
    for (int j = 0; j < i; ++j) {
      const int column = j * kTile + c;
      float sum = 0;
      for (int m = 0; m <= r; ++m) {
        sum = fmaf(-inverse[row * kPitch + i * kTile + m], work[m * kPitch + column], sum);
      }
      inverse[row * kPitch + column] = sum;
    }
    __syncthreads();
  }
}

__device__ inline void store_tile(const float* panel, float* tile) {
#pragma unroll
  for (int step = 0; step < kTileFloats / 4 / kThreads; ++step) {
    const int at = step * kThreads + static_cast<int>(threadIdx.x);
    store4(tile + at * 4, load4(panel + at / 16 * kPitch + at % 16 * 4));
  }
}

}  // namespace longhaul::cuda::kda_general
