// The state that runs from chunk to chunk, padded to whole vectors, and the residual values of a chunk that both passes
// need: Vt = (I + L)^-1 diag(beta) (V - (K e^G) S), each row what the delta rule writes for that token.
#pragma once

#include "kernels/kda/chunk_scores.h"
#include "kernels/kda/triangular_solve.h"

namespace longhaul::kda {

// [key_dim, value_dim] in a tensor to a padded panel; absent: zeros.
template <class T>
void load_state(const TensorView& from, int64_t offset, const Dims& dims, Panel<T> to) {
  if (from.is_present()) {
    load_panel(from.data<T>() + offset, dims.value_dim, dims.key_dim, dims.value_dim, dims.key_width(), to);
  } else {
    std::fill_n(to.data, dims.key_width() * to.width, T{0});
  }
}

template <class T>
void store_state(Panel<T> from, const Dims& dims, const TensorView& to, int64_t offset) {
  if (to.is_present()) {
    store_panel(from, dims.key_dim, dims.value_dim, to.data<T>() + offset, dims.value_dim);
  }
}

// k_start is K e^G [rows, key]; residual [rows, value] is the result.
template <class T>
void compute_residual(const ChunkInputs<T>& in, Panel<T> k_start, const ChunkScores<T>& scores, Panel<T> state,
                      int64_t rows, Panel<T> residual) {
  using tiles::Into;
  using tiles::Sum;
  std::copy_n(in.v.data, rows * in.v.width, residual.data);
  tiles::product<Sum::Full, Into::Subtract, T>(rows, residual.width, in.k.width, {k_start.data, k_start.width, 1},
                                               state.data, state.width, residual.data, residual.width);
  scale_rows(rows, residual.width, in.beta, residual.data);
  tiles::solve_unit_lower<T>(rows, residual.width, scores.l.data, scores.l.width, residual.data, residual.width);
}

}  // namespace longhaul::kda
