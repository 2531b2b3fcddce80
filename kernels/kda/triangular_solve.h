// Solves with the unit lower triangular matrix I + L of a chunk, in place on [rows, columns] right-hand sides:
// products for the tiles off the diagonal, forward (or backward) substitution inside the 16 x 16 tiles. No inverse is
// formed, and never a Neumann series: its powers grow like binomials when keys are nearly parallel and beta is near 1.
//
// Only L's strictly lower triangle is read. Row i of the forward solve depends on rows <= i only, bitwise.
#pragma once

#include "kernels/kda/tile_products.h"

namespace longhaul::tiles {

inline constexpr int64_t kTile = 16;

namespace detail {

enum class Side : uint8_t { Lower, Transposed };

// One tile of 16 rows, two vectors of columns at a time, from row 0 down (lower) or from row 15 up (transposed).
template <Side side, class T>
void substitute_tile(int64_t columns, const T* l, int64_t ldl, T* x, int64_t ldx) {
  constexpr int64_t lanes = kLanes<T>;
  constexpr bool transposed = side == Side::Transposed;
  for (int64_t c = 0; c < columns; c += 2 * lanes) {
    for (int64_t step = 1; step < kTile; ++step) {
      const int64_t i = transposed ? kTile - 1 - step : step;
      Vector<T> sum0 = load(x + i * ldx + c);
      Vector<T> sum1 = load(x + i * ldx + c + lanes);
      for (int64_t s = 0; s < step; ++s) {
        const int64_t j = transposed ? kTile - 1 - s : s;
        const Vector<T> value = broadcast(transposed ? l[j * ldl + i] : l[i * ldl + j]);
        sum0 = subtract_product(value, load(x + j * ldx + c), sum0);
        sum1 = subtract_product(value, load(x + j * ldx + c + lanes), sum1);
      }
      store(x + i * ldx + c, sum0);
      store(x + i * ldx + c + lanes, sum1);
    }
  }
}

}  // namespace detail

// x <- (I + L)^-1 x
template <class T>
void solve_unit_lower(int64_t rows, int64_t columns, const T* l, int64_t ldl, T* x, int64_t ldx) {
  for (int64_t i = 0; i < rows; i += kTile) {
    product<Sum::Full, Into::Subtract, T>(kTile, columns, i, {l + i * ldl, ldl, 1}, x, ldx, x + i * ldx, ldx);
    detail::substitute_tile<detail::Side::Lower>(columns, l + i * ldl + i, ldl, x + i * ldx, ldx);
  }
}

// x <- (I + L)^-T x
template <class T>
void solve_unit_lower_transposed(int64_t rows, int64_t columns, const T* l, int64_t ldl, T* x, int64_t ldx) {
  for (int64_t i = rows - kTile; i >= 0; i -= kTile) {
    const int64_t below = i + kTile;
    product<Sum::Full, Into::Subtract, T>(kTile, columns, rows - below, {l + below * ldl + i, 1, ldl}, x + below * ldx, ldx,
                                          x + i * ldx, ldx);
    detail::substitute_tile<detail::Side::Transposed>(columns, l + i * ldl + i, ldl, x + i * ldx, ldx);
  }
}

}  // namespace longhaul::tiles
