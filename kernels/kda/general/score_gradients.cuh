// Gradients through the score matrices of a chunk: the part of ChunkGradients that needs decay factors, and nothing of the
// value dimension any more. kernels/kda/scores_backward.h is the same on the CPU.
#pragma once

#include "kernels/kda/general/chunk_gradients.cuh"

namespace longhaul::cuda::kda_general {

// Slots: scale q from_first; beta k from_first; k to_end; k / from_first (dense tiles).
template <class T, KdaTiles kTiles>
__device__ void ChunkGradients<T, kTiles>::decay_panels(int key_tile, ColumnDecay& decay) {
  const int c = ColumnDecay::channel(), first_row = ColumnDecay::tile() * kTile;
  const int64_t key = key_tile * kKeys + c;
  float q[kTile], k[kTile], to_end[kTile];
  load_column(grid_, p_.in.q, token_, rows_, head_, key, q);
  load_column(grid_, p_.in.k, token_, rows_, head_, key, k);
  decay.to_end(to_end);
  float from_first = 1;
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    const int element = (first_row + r) * kPitch + c;
    from_first = r == 0 ? 1.0f : from_first * decay.alpha[r];
    slot(0)[element] = p_.in.scale * q[r] * from_first;
    slot(1)[element] = small_.beta[first_row + r] * k[r] * from_first;
    slot(2)[element] = k[r] * to_end[r];
    if constexpr (kTiles == KdaTiles::Dense) {
      slot(3)[element] = k[r] * (1.0f / from_first);
    }
  }
}

// The tiles before the thread's own in the manner of Horner: walking tile by tile, the sum so far decays by one tile and the
// next tile's product is added. So all factors stay <= 1, and the sums start from what came through the state.
template <class T, KdaTiles kTiles>
__device__ void ChunkGradients<T, kTiles>::add_rows_below() {
  const int own = tile();
  for (int j = 0; j <= own; ++j) {
    const float* decay = j < own ? small_.decay.total[j] : small_.decay.first[own];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float factor = decay[column() + 16 * c];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        row_q_[r][c] *= factor;
        row_k_[r][c] *= factor;
      }
    }
    if (j == own && kTiles == KdaTiles::Pairwise) {
      return;
    }
    const float* keys = (j < own ? slot(2) : slot(3)) + j * kTile * kPitch + column();
    const float* d_a = slot(kDScores) + row() * kPitch + j * kTile;
    const float* d_l = slot(kDKeys) + row() * kPitch + j * kTile;
#pragma unroll 1
    for (int p = 0; p < kTile; p += 4) {
      float4 right[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float* key = keys + p * kPitch + 16 * c;
        right[c] = make_float4(key[0], key[kPitch], key[2 * kPitch], key[3 * kPitch]);
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float4 a = load4(d_a + r * kPitch + p), l = load4(d_l + r * kPitch + p);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          row_q_[r][c] = add_dot(a, right[c], row_q_[r][c]);
          row_k_[r][c] = add_dot(l, right[c], row_k_[r][c]);
        }
      }
    }
  }
}

// The tiles after the thread's own, from the last one back; and with dense tiles the own one, apart.
template <class T, KdaTiles kTiles>
__device__ void ChunkGradients<T, kTiles>::add_columns_above() {
  const int own = tile();
  const auto add_tile = [&](int i, Part& part) {
#pragma unroll 2
    for (int m = i * kTile; m < (i + 1) * kTile; ++m) {
      const float4 d_a = load4(slot(kDScores) + m * kPitch + row()), d_l = load4(slot(kDKeys) + m * kPitch + row());
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float q = slot(0)[m * kPitch + column() + 16 * c], k = slot(1)[m * kPitch + column() + 16 * c];
        part[0][c] = fmaf(d_l.x, k, fmaf(d_a.x, q, part[0][c]));
        part[1][c] = fmaf(d_l.y, k, fmaf(d_a.y, q, part[1][c]));
        part[2][c] = fmaf(d_l.z, k, fmaf(d_a.z, q, part[2][c]));
        part[3][c] = fmaf(d_l.w, k, fmaf(d_a.w, q, part[3][c]));
      }
    }
  };
  const auto scale = [&](const float* decay) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float factor = decay[column() + 16 * c];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        col_[r][c] *= factor;
      }
    }
  };
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      col_[r][c] = col_diagonal_[r][c] = 0;
    }
  }
  for (int i = 3; i > own; --i) {
    scale(small_.decay.rest[i]);
    add_tile(i, col_);
    scale(small_.decay.first[i]);
  }
  if constexpr (kTiles == KdaTiles::Dense) {
    add_tile(own, col_diagonal_);
  }
}

// The pairs of a diagonal tile with unbounded gates, each decayed on its own. Slots: scale q, k, alpha.
template <class T, KdaTiles kTiles>
__device__ void ChunkGradients<T, kTiles>::add_pairs() {
  const int begin = tile() * kTile, end = begin + kTile;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const float *q = slot(0) + column() + 16 * c, *k = slot(1) + column() + 16 * c, *alpha = slot(2) + column() + 16 * c;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int own = row() + r;
      const float *d_a = slot(kDScores) + own * kPitch, *d_l = slot(kDKeys) + own * kPitch;
      float sum_q = 0, sum_k = 0, sum = 0;
      for (int j = begin; j < own; ++j) {
        const float factor = alpha[(j + 1) * kPitch], key = k[j * kPitch];
        sum_q = fmaf(d_a[j], key, sum_q) * factor;
        sum_k = fmaf(d_l[j], key, sum_k) * factor;
      }
      for (int i = end - 1; i > own; --i) {
        const float d_key = small_.beta[i] * slot(kDKeys)[i * kPitch + own];
        sum = fmaf(d_key, k[i * kPitch], fmaf(slot(kDScores)[i * kPitch + own], q[i * kPitch], sum)) * alpha[i * kPitch];
      }
      row_q_[r][c] += sum_q;
      row_k_[r][c] += sum_k;
      col_[r][c] += sum;
    }
  }
}

// Completes row_q, row_k, col and out. Leaves scale q and k in slots 0 and 1.
template <class T, KdaTiles kTiles>
__device__ void ChunkGradients<T, kTiles>::through_scores(int key_tile) {
  const int c = ColumnDecay::channel(), first_row = ColumnDecay::tile() * kTile;
  const int64_t key = key_tile * kKeys + c;
  ColumnDecay decay;
  decay.load(grid_, p_.in.g, token_, rows_, head_, key);
  decay.share(small_.decay);
  __syncthreads();  // also: states() is done with the slots
  decay_panels(key_tile, decay);
  __syncthreads();
  add_rows_below();
  add_columns_above();
  __syncthreads();
  {
    float q[kTile], k[kTile], to_end[kTile];
    load_column(grid_, p_.in.q, token_, rows_, head_, key, q);
    load_column(grid_, p_.in.k, token_, rows_, head_, key, k);
    decay.load(grid_, p_.in.g, token_, rows_, head_, key);
    decay.to_end(to_end);
    float from_first = 1;
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
      const int element = (first_row + r) * kPitch + c;
      from_first = r == 0 ? 1.0f : from_first * decay.alpha[r];
      slot(0)[element] = p_.in.scale * q[r];
      slot(1)[element] = k[r];
      slot(2)[element] = from_first;
      slot(3)[element] = to_end[r];
    }
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float after = small_.decay.after(tile(), column() + 16 * j);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float from_first = slot(2)[at(r, j)], to_end = slot(3)[at(r, j)];
      row_q_[r][j] *= from_first;
      row_k_[r][j] *= from_first;
      out_[r][j] *= to_end * after;
      col_[r][j] *= to_end;
      if constexpr (kTiles == KdaTiles::Dense) {
        col_[r][j] += (1.0f / from_first) * col_diagonal_[r][j];
      }
    }
  }
  if constexpr (kTiles == KdaTiles::Pairwise) {
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
      slot(2)[(first_row + r) * kPitch + c] = decay.alpha[r];
    }
    __syncthreads();
    add_pairs();
  }
}

}  // namespace longhaul::cuda::kda_general
