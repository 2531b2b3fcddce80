// See chunk_scores.h. Off the diagonal all factors are at most 1: columns decay to the first row of the row tile, rows from
// there on. On it, columns take the reciprocal of the decay from the first row to theirs.
#include "tools/decay_scan/chunk_scores.h"

#include <algorithm>
#include <cmath>

namespace longhaul::decay {
namespace {

// e^{G_f - G_j} of the columns j of tile [begin, end) towards the first row f of the row tile.
template <class T>
Matrix<T> column_factors(const ChunkDecay<T>& decay, int64_t begin, int64_t end, int64_t row_begin) {
  Matrix<T> factors = rows_of(row_begin == begin ? decay.from_first : decay.to_end, begin, end);
  if (row_begin == begin) {
    std::for_each(factors.values.begin(), factors.values.end(), [](T& x) { x = 1 / x; });
    return factors;
  }
  for (int64_t c = 0; c < factors.columns; ++c) {
    T between = 1;
    for (int64_t i = end; i <= row_begin; ++i) {
      between *= decay.alpha(i, c);
    }
    for (int64_t j = 0; j < factors.rows; ++j) {
      factors(j, c) *= between;
    }
  }
  return factors;
}

template <class T>
void copy_block(const Matrix<T>& block, int64_t row, int64_t column, Matrix<T>& to) {
  for (int64_t i = 0; i < block.rows; ++i) {
    std::copy_n(block.row(i), block.columns, to.row(row + i) + column);
  }
}

// Rows [i, i_end) and columns [j, j_end); on the diagonal only what is strictly below it, zeros elsewhere.
template <class T>
Matrix<T> block_of(const Matrix<T>& m, int64_t i, int64_t i_end, int64_t j, int64_t j_end) {
  Matrix<T> block(i_end - i, j_end - j);
  for (int64_t r = i; r < i_end; ++r) {
    for (int64_t c = j; c < j_end && c < r; ++c) {
      block(r - i, c - j) = m(r, c);
    }
  }
  return block;
}

template <class T>
void add_rows(Matrix<T>& sum, int64_t first, const Matrix<T>& part) {
  for (int64_t i = 0; i < part.rows; ++i) {
    std::transform(part.row(i), part.row(i) + part.columns, sum.row(first + i), sum.row(first + i), std::plus<>());
  }
}

// fn(index of the pair, first and end row of the row tile, first and end row of the column tile)
template <class T, class Fn>
void for_each_tile_pair(const ChunkDecay<T>& decay, Fn&& fn) {
  size_t pair = 0;
  for (int64_t i = 0; i < decay.rows(); i += decay.tile) {
    for (int64_t j = 0; j <= i; j += decay.tile) {
      fn(pair++, i, decay.end_of(i), j, decay.end_of(j));
    }
  }
}

}  // namespace

template <class T>
ChunkDecay<T>::ChunkDecay(const Matrix<T>& g, int64_t tile_rows)
    : tile(tile_rows), alpha(g), from_first(g.rows, g.columns), to_end(g.rows, g.columns), from_start(g.rows, g.columns), to_last(g.rows, g.columns), total(static_cast<size_t>(g.columns)) {
  std::for_each(alpha.values.begin(), alpha.values.end(), [](T& x) { x = std::exp(x); });
  for (int64_t c = 0; c < g.columns; ++c) {
    T passed = 1;
    for (int64_t i = 0; i < rows(); ++i) {
      passed *= alpha(i, c);
      from_start(i, c) = passed;
      from_first(i, c) = i % tile == 0 ? T{1} : from_first(i - 1, c) * alpha(i, c);
    }
    total[static_cast<size_t>(c)] = passed;
    for (int64_t i = rows() - 1; i >= 0; --i) {
      const bool is_last = i + 1 == rows();
      to_last(i, c) = is_last ? T{1} : to_last(i + 1, c) * alpha(i + 1, c);
      to_end(i, c) = is_last || (i + 1) % tile == 0 ? T{1} : to_end(i + 1, c) * alpha(i + 1, c);
    }
  }
}

template <class T>
Scores<T> make_scores(const TensorCore<T>& core, const ChunkDecay<T>& decay, const Matrix<T>& q, const Matrix<T>& k, const std::vector<T>& beta) {
  const int64_t n = decay.rows();
  Scores<T> s{.l = Matrix<T>(n, n), .a = Matrix<T>(n, n), .q_rows = times(q, decay.from_first), .k_rows = times(k, decay.from_first), .k_columns = {}, .factors = {}};
  for_each_tile_pair(decay, [&](size_t pair, int64_t i, int64_t i_end, int64_t j, int64_t j_end) {
    s.factors.push_back(column_factors(decay, j, j_end, i));
    s.k_columns.push_back(times(rows_of(k, j, j_end), s.factors.back()));
    const Matrix<T> columns = transposed(s.k_columns[pair]);
    copy_block(core.product(rows_of(s.q_rows, i, i_end), columns), i, j, s.a);
    copy_block(core.product(rows_of(s.k_rows, i, i_end), columns), i, j, s.l);
  });
  for (int64_t i = 0; i < n; ++i) {
    s.a(i, i) = 0;
    for (int64_t c = 0; c < q.columns; ++c) {
      s.a(i, i) += q(i, c) * k(i, c);  // E_ii = 1: no factors, no rounding of them
    }
    std::fill(s.a.row(i) + i + 1, s.a.row(i) + n, T{0});
    std::fill(s.l.row(i) + i, s.l.row(i) + n, T{0});
    std::for_each(s.l.row(i), s.l.row(i) + i, [&](T& x) { x *= beta[static_cast<size_t>(i)]; });
  }
  return s;
}

template <class T>
ScoreGradients<T> make_score_gradients(const TensorCore<T>& core, const ChunkDecay<T>& decay, const Scores<T>& scores, const Matrix<T>& d_a, const Matrix<T>& d_l,
                                    const std::vector<T>& beta) {
  const int64_t n = decay.rows(), keys = scores.q_rows.columns;
  ScoreGradients<T> g{.row_q = Matrix<T>(n, keys), .row_k = Matrix<T>(n, keys), .column_k = Matrix<T>(n, keys)};
  const Matrix<T> scaled_l = times_rows(d_l, beta);
  for_each_tile_pair(decay, [&](size_t pair, int64_t i, int64_t i_end, int64_t j, int64_t j_end) {
    const Matrix<T> from_first = rows_of(decay.from_first, i, i_end);
    const Matrix<T> of_a = block_of(d_a, i, i_end, j, j_end), of_l = block_of(d_l, i, i_end, j, j_end), of_scaled_l = block_of(scaled_l, i, i_end, j, j_end);
    add_rows(g.row_q, i, times(core.product(of_a, scores.k_columns[pair]), from_first));
    add_rows(g.row_k, i, times(core.product(of_l, scores.k_columns[pair]), from_first));
    Matrix<T> columns = core.product(transposed(of_a), rows_of(scores.q_rows, i, i_end));
    add_to(columns, core.product(transposed(of_scaled_l), rows_of(scores.k_rows, i, i_end)));
    add_rows(g.column_k, j, times(columns, scores.factors[pair]));
  });
  return g;
}

#define LH_INSTANTIATE(T)                                                                                                            \
  template struct ChunkDecay<T>;                                                                                                     \
  template Scores<T> make_scores(const TensorCore<T>&, const ChunkDecay<T>&, const Matrix<T>&, const Matrix<T>&, const std::vector<T>&); \
  template ScoreGradients<T> make_score_gradients(const TensorCore<T>&, const ChunkDecay<T>&, const Scores<T>&, const Matrix<T>&,    \
                                                  const Matrix<T>&, const std::vector<T>&)
LH_INSTANTIATE(float);
LH_INSTANTIATE(double);
#undef LH_INSTANTIATE

}  // namespace longhaul::decay
