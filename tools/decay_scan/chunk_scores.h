// The part of the emulation in which decay is split into factors: the two score matrices of a chunk and the gradients through
// them.
//   L_ij = beta_i <k_i, k_j E_ij>  (i > j)        A_ij = <q_i, k_j E_ij>  (i >= j), without the scale
#pragma once

#include <cstdint>
#include <vector>

#include "tools/decay_scan/matrix.h"

namespace longhaul::decay {

// Products of e^g over runs of rows; all [rows, key_dim].
template <class T>
struct ChunkDecay {
  int64_t tile;
  Matrix<T> alpha;       // e^g
  Matrix<T> from_first;  // (first row of the tile, this row]; 1 in the first row
  Matrix<T> to_end;      // (this row, last row of the tile]
  Matrix<T> from_start;  // [first row of the chunk, this row]
  Matrix<T> to_last;     // (this row, last row of the chunk]
  std::vector<T> total;  // [key_dim] over all rows

  ChunkDecay(const Matrix<T>& g, int64_t tile_rows);
  [[nodiscard]] int64_t rows() const { return alpha.rows; }
  [[nodiscard]] int64_t end_of(int64_t begin) const { return begin + tile < rows() ? begin + tile : rows(); }
};

template <class T>
struct Scores {
  Matrix<T> l;  // [rows, rows], strictly lower
  Matrix<T> a;  // [rows, rows], lower
  // The operands, not yet rounded, which the gradients use again.
  Matrix<T> q_rows, k_rows;           // q, k times from_first
  std::vector<Matrix<T>> k_columns;   // of each pair of tiles (row tile I >= J), at I (I + 1) / 2 + J: k towards the first row of I
  std::vector<Matrix<T>> factors;     // the decay in k_columns
};
template <class T>
[[nodiscard]] Scores<T> make_scores(const TensorCore<T>& core, const ChunkDecay<T>& decay, const Matrix<T>& q, const Matrix<T>& k, const std::vector<T>& beta);

// Pairs i = j are left to the caller: E_ii = 1 has no derivative.
template <class T>
struct ScoreGradients {
  Matrix<T> row_q;     // sum_{j<i} dA_ij k_j E_ij
  Matrix<T> row_k;     // sum_{j<i} dL_ij k_j E_ij
  Matrix<T> column_k;  // sum_{i>j} (dA_ij q_i + beta_i dL_ij k_i) E_ij
};
template <class T>
[[nodiscard]] ScoreGradients<T> make_score_gradients(const TensorCore<T>& core, const ChunkDecay<T>& decay, const Scores<T>& scores, const Matrix<T>& d_a,
                                                  const Matrix<T>& d_l, const std::vector<T>& beta);

}  // namespace longhaul::decay
