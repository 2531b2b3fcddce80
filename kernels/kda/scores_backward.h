// Gradients through the two score matrices of chunk_scores.h, given dA and dL (lower triangles):
//   row_q_i  = sum_{j<i} dA_ij k_j E_ij            row_k_i = sum_{j<i} dL_ij k_j E_ij
//   column_j = sum_{i>j} (dA_ij q_i + dL_ij k_i) E_ij
// The pair i = j is left to the caller: E_ii = 1 has no derivative, and letting it cancel numerically in the gate gradient
// would cost accuracy exactly where gates are strong.
//
// Tiles off the diagonal are summed in the manner of Horner: walking tile by tile, the sum so far decays by one tile and
// the next tile's product is added. So all factors stay <= 1, and the row sums start from the gradient through the
// incoming state, which decays in the same way.
#pragma once

#include "kernels/kda/chunk_scores.h"

namespace longhaul::kda {

namespace detail {

// The tile at (row_tile, column_tile) of a score matrix, as it is or transposed.
template <class T>
[[nodiscard]] tiles::Strided<T> score_tile(Panel<T> scores, int64_t row_tile, int64_t column_tile) {
  return {scores.row(row_tile * kKdaTile) + column_tile * kKdaTile, scores.width, 1};
}
template <class T>
[[nodiscard]] tiles::Strided<T> score_tile_transposed(Panel<T> scores, int64_t row_tile, int64_t column_tile) {
  return {scores.row(row_tile * kKdaTile) + column_tile * kKdaTile, 1, scores.width};
}

// sum [16, key] += scores [16, 16] rows [16, key], over the pairs that `which` admits.
template <tiles::Sum which, class T>
void add_tile(tiles::Strided<T> scores, Panel<T> rows, int64_t tile, T* sum) {
  tiles::product<which, tiles::Into::Add, T>(kKdaTile, rows.width, kKdaTile, scores, rows.row(tile * kKdaTile), rows.width,
                                             sum, rows.width);
}

// rows += d_scores k E over the pairs of a diagonal tile, each decayed on its own.
template <class T>
void add_row_pairs(const ChunkInputs<T>& in, Panel<T> d_scores, int64_t tile, T* decayed, Panel<T> rows) {
  const int64_t width = in.k.width;
  const int64_t end = (tile + 1) * kKdaTile;
  for (int64_t j = tile * kKdaTile; j < end; ++j) {
    std::copy_n(in.k.row(j), width, decayed);
    for (int64_t i = j + 1; i < end; ++i) {
      multiply_in_place(width, in.decay.alpha.row(i), decayed);
      add_scaled(width, d_scores.row(i)[j], decayed, rows.row(i));
    }
  }
}

template <class T>
void add_column_pairs(const ChunkInputs<T>& in, Panel<T> d_a, Panel<T> d_l, int64_t tile, T* sum, Panel<T> columns) {
  const int64_t width = in.k.width;
  const int64_t begin = tile * kKdaTile;
  const int64_t end = begin + kKdaTile;
  for (int64_t j = begin; j < end; ++j) {
    // Horner again, row by row: the sum over i' >= i, decayed to row i - 1.
    std::fill_n(sum, width, T{0});
    for (int64_t i = end - 1; i > j; --i) {
      add_scaled(width, d_a.row(i)[j], in.q.row(i), sum);
      add_scaled(width, d_l.row(i)[j], in.k.row(i), sum);
      multiply_in_place(width, in.decay.alpha.row(i), sum);
    }
    add_scaled(width, T{1}, sum, columns.row(j));
  }
}

}  // namespace detail

// On entry, rows [64, key] holds the gradient of q e^G (or k e^G) through the incoming state, before decay; on return the
// full row sums for d_scores = dA (or dL / beta), decayed. work is [key].
template <class T>
void add_score_rows(const ChunkInputs<T>& in, Panel<T> d_scores, int64_t num_tiles, KdaTiles diagonal, T* work,
                    Panel<T> rows) {
  const int64_t width = in.k.width;
  for (int64_t i = 0; i < num_tiles; ++i) {
    T* sum = rows.row(i * kKdaTile);
    for (int64_t j = 0; j < i; ++j) {
      scale_columns(kKdaTile, width, in.decay.tile_total.row(j), sum);
      detail::add_tile<tiles::Sum::Full>(detail::score_tile(d_scores, i, j), in.k_end, j, sum);
    }
    scale_columns(kKdaTile, width, in.decay.first(i), sum);
    if (diagonal == KdaTiles::Dense) {
      detail::add_tile<tiles::Sum::BeforeRow>(detail::score_tile(d_scores, i, i), in.k_inverse, i, sum);
    }
    multiply_in_place(kKdaTile * width, in.decay.from_first.row(i * kKdaTile), sum);
    if (diagonal == KdaTiles::Pairwise) {
      detail::add_row_pairs(in, d_scores, i, work, rows);
    }
  }
}

// columns [64, key] is overwritten with the column sums. tile_sum is work of [16, key].
template <class T>
void score_columns(const ChunkInputs<T>& in, Panel<T> d_a, Panel<T> d_l, int64_t num_tiles, KdaTiles diagonal, T* tile_sum,
                   Panel<T> columns) {
  using detail::add_tile;
  using tiles::Sum;
  const int64_t width = in.k.width;
  const int64_t size = kKdaTile * width;
  for (int64_t j = 0; j < num_tiles; ++j) {
    T* sum = columns.row(j * kKdaTile);
    std::fill_n(sum, size, T{0});
    for (int64_t i = num_tiles - 1; i > j; --i) {
      scale_columns(kKdaTile, width, in.decay.rest(i), sum);
      add_tile<Sum::Full>(detail::score_tile_transposed(d_a, i, j), in.q_first, i, sum);
      add_tile<Sum::Full>(detail::score_tile_transposed(d_l, i, j), in.k_first, i, sum);
      scale_columns(kKdaTile, width, in.decay.first(i), sum);
    }
    multiply_in_place(size, in.decay.to_end.row(j * kKdaTile), sum);
    if (diagonal == KdaTiles::Pairwise) {
      detail::add_column_pairs(in, d_a, d_l, j, tile_sum, columns);
      continue;
    }
    std::fill_n(tile_sum, size, T{0});
    add_tile<Sum::AfterRow>(detail::score_tile_transposed(d_a, j, j), in.q_first, j, tile_sum);
    add_tile<Sum::AfterRow>(detail::score_tile_transposed(d_l, j, j), in.k_first, j, tile_sum);
    const T* inverse = in.decay.inverse.row(j * kKdaTile);
    for (int64_t c = 0; c < size; ++c) {
      sum[c] += inverse[c] * tile_sum[c];
    }
  }
}

}  // namespace longhaul::kda
