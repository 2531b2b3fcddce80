// The two lower triangular score matrices of a chunk (Kimi Linear, arXiv:2510.26692, eq. 6-9):
//   L_ij = beta_i sum_c k_ic k_jc E_ij[c]   (i > j)        A_ij = sum_c q_ic k_jc E_ij[c]   (i >= j), q already scaled.
// Only these triangles are defined; what lies above the diagonal is unspecified and must not be read.
#pragma once

#include "kernels/kda/chunk_decay.h"
#include "kernels/kda/elementwise.h"
#include "kernels/kda/tile_products.h"

namespace longhaul::kda {

// What a chunk reads, and the products of it with decay that several steps share.
template <class T>
struct ChunkInputs {
  Panel<T> q;         // [64, key] scale * q
  Panel<T> k;         // [64, key]
  Panel<T> v;         // [64, value]
  T* beta;            // [64]
  ChunkDecay<T> decay;
  Panel<T> q_first;   // [64, key] q * from_first
  Panel<T> k_first;   // [64, key] k * from_first
  Panel<T> k_end;     // [64, key] k * to_end
  Panel<T> k_inverse; // [64, key] k * inverse; KdaTiles::Dense

  ChunkInputs(Arena& arena, const Dims& dims)
      : q(take_panel<T>(arena, "kda.q", kKdaChunk, dims.key_width())),
        k(take_panel<T>(arena, "kda.k", kKdaChunk, dims.key_width())),
        v(take_panel<T>(arena, "kda.v", kKdaChunk, dims.value_width())),
        beta(take_panel<T>(arena, "kda.beta", 1, kKdaChunk).data),
        decay(arena, dims),
        q_first(take_panel<T>(arena, "kda.q_first", kKdaChunk, dims.key_width())),
        k_first(take_panel<T>(arena, "kda.k_first", kKdaChunk, dims.key_width())),
        k_end(take_panel<T>(arena, "kda.k_end", kKdaChunk, dims.key_width())),
        k_inverse(take_panel<T>(arena, "kda.k_inverse", kKdaChunk, dims.key_width())) {}
};

// Pointers to the tensors of a whole call.
template <class T>
struct Tensors {
  const T* q;
  const T* k;
  const T* v;
  const T* g;
  const T* beta;
  T scale;
  KdaTiles diagonal;
};

template <class T>
void load_inputs(const Tensors<T>& from, const Dims& dims, const Chunk& chunk, int64_t head, ChunkInputs<T>& to) {
  const int64_t key_stride = dims.heads * dims.key_dim;
  const int64_t value_stride = dims.heads * dims.value_dim;
  const int64_t key_at = dims.key_offset(chunk.first_token, head);
  const int64_t padded = chunk.padded_rows();
  load_panel(from.q + key_at, key_stride, chunk.rows, dims.key_dim, padded, to.q);
  load_panel(from.k + key_at, key_stride, chunk.rows, dims.key_dim, padded, to.k);
  load_panel(from.v + dims.value_offset(chunk.first_token, head), value_stride, chunk.rows, dims.value_dim, padded, to.v);
  for (int64_t i = 0; i < padded; ++i) {
    to.beta[i] = i < chunk.rows ? from.beta[(chunk.first_token + i) * dims.heads + head] : T{0};
  }
  const int64_t n = padded * to.q.width;
  for (int64_t c = 0; c < n; ++c) {
    to.q.data[c] *= from.scale;
  }
  to.decay.load(from.g + key_at, key_stride, dims.key_dim, chunk, from.diagonal);
  multiply_rows(n, to.q.data, to.decay.from_first.data, to.q_first.data);
  multiply_rows(n, to.k.data, to.decay.from_first.data, to.k_first.data);
  multiply_rows(n, to.k.data, to.decay.to_end.data, to.k_end.data);
  if (from.diagonal == KdaTiles::Dense) {
    multiply_rows(n, to.k.data, to.decay.inverse.data, to.k_inverse.data);
  }
}

template <class T>
struct ChunkScores {
  Panel<T> l;         // [64, 64] strictly lower
  Panel<T> a;         // [64, 64] lower
  Panel<T> columns;   // [key, 16] work: keys of a tile, feature-major, decayed towards the row tile
  Panel<T> k_t;       // [key, 16] work: the same, undecayed between tiles
  Panel<T> between;   // [1, key] work

  ChunkScores(Arena& arena, const Dims& dims)
      : l(take_panel<T>(arena, "kda.l", kKdaChunk, kKdaChunk)),
        a(take_panel<T>(arena, "kda.a", kKdaChunk, kKdaChunk)),
        columns(take_panel<T>(arena, "kda.columns", dims.key_width(), kKdaTile)),
        k_t(take_panel<T>(arena, "kda.k_t", dims.key_width(), kKdaTile)),
        between(take_panel<T>(arena, "kda.between", 1, dims.key_width())) {}

  void compute(const ChunkInputs<T>& in, int64_t num_tiles, KdaTiles diagonal);

 private:
  // The tile at (row_tile, column_tile) of both matrices from keys in feature-major order.
  void dense_tile(const ChunkInputs<T>& in, int64_t row_tile, int64_t column_tile, const T* keys);
  void pairwise_tile(const ChunkInputs<T>& in, int64_t tile);
};

template <class T>
void ChunkScores<T>::compute(const ChunkInputs<T>& in, int64_t num_tiles, KdaTiles diagonal) {
  const int64_t width = in.k.width;
  for (int64_t j = 0; j < num_tiles; ++j) {
    if (diagonal == KdaTiles::Dense) {
      tiles::transpose(kKdaTile, width, in.k_inverse.row(j * kKdaTile), width, columns.data, kKdaTile);
      dense_tile(in, j, j, columns.data);
    } else {
      pairwise_tile(in, j);
    }
    for (int64_t i = j * kKdaTile; i < (j + 1) * kKdaTile; ++i) {
      a.row(i)[i] = tiles::dot(in.q.row(i), in.k.row(i), width);  // E_ii is 1: no decay, no rounding of it
    }
    tiles::transpose(kKdaTile, width, in.k_end.row(j * kKdaTile), width, k_t.data, kKdaTile);
    std::fill_n(between.data, width, T{1});
    for (int64_t i = j + 1; i < num_tiles; ++i) {
      const T* first = in.decay.first(i);
      for (int64_t c = 0; c < width; ++c) {
        const T factor = between.data[c] * first[c];
        for (int64_t r = 0; r < kKdaTile; ++r) {
          columns.row(c)[r] = k_t.row(c)[r] * factor;
        }
      }
      multiply_in_place(width, in.decay.tile_total.row(i), between.data);
      dense_tile(in, i, j, columns.data);
    }
  }
  for (int64_t i = 0; i < num_tiles * kKdaTile; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      l.row(i)[j] *= in.beta[i];
    }
  }
}

template <class T>
void ChunkScores<T>::dense_tile(const ChunkInputs<T>& in, int64_t row_tile, int64_t column_tile, const T* keys) {
  using tiles::Into;
  using tiles::Sum;
  const int64_t width = in.k.width;
  const int64_t row = row_tile * kKdaTile;
  const int64_t column = column_tile * kKdaTile;
  tiles::product<Sum::Full, Into::Set, T>(kKdaTile, kKdaTile, width, {in.k_first.row(row), width, 1}, keys, kKdaTile,
                                          l.row(row) + column, kKdaChunk);
  tiles::product<Sum::Full, Into::Set, T>(kKdaTile, kKdaTile, width, {in.q_first.row(row), width, 1}, keys, kKdaTile,
                                          a.row(row) + column, kKdaChunk);
}

// For each column j the decay grows row by row; no exponential, no overflow, whatever the gates.
template <class T>
void ChunkScores<T>::pairwise_tile(const ChunkInputs<T>& in, int64_t tile) {
  const int64_t width = in.k.width;
  const int64_t end = (tile + 1) * kKdaTile;
  T* decayed = between.data;  // k_j E_ij
  for (int64_t j = tile * kKdaTile; j < end; ++j) {
    std::copy_n(in.k.row(j), width, decayed);
    for (int64_t i = j + 1; i < end; ++i) {
      for (int64_t c = 0; c < width; ++c) {
        decayed[c] *= in.decay.alpha.row(i)[c];
      }
      l.row(i)[j] = tiles::dot(in.k.row(i), decayed, width);
      a.row(i)[j] = tiles::dot(in.q.row(i), decayed, width);
    }
  }
}

}  // namespace longhaul::kda
