// Small matrix products and triangular solves for the chunked operators. They are written here and not left to BLAS for
// one reason: bitwise causality. Each element of C is one chain of multiply-adds over the contracted index in ascending
// order, whatever the sizes, so that a row has the same bits in a short chunk and in a full one; and a triangular sum
// never touches the excluded elements, so that a future infinity cannot become 0 * inf = NaN in the past.
//
// Row counts are multiples of 4, column counts multiples of 16: callers pad with zeros.
#pragma once

#include <cstdint>

#include "kernels/kda/simd.h"

namespace longhaul::tiles {

// Element (i, p) is data[i * row + p * column]: a matrix, or its transpose.
template <class T>
struct Strided {
  const T* data;
  int64_t row;
  int64_t column;
};

// Which p enter the sum for row i. The triangular ones need no zeros in the rest of A, which is never read.
enum class Sum : uint8_t {
  Full,
  UpToRow,    // p <= i
  BeforeRow,  // p < i
  FromRow,    // p >= i
  AfterRow,   // p > i
};

enum class Into : uint8_t {
  Set,       // C  = A B
  Add,       // C += A B
  Subtract,  // C -= A B
};

inline constexpr int64_t kRowBlock = 4;

namespace detail {

template <Into into, class T>
[[gnu::always_inline]] inline Vector<T> step(Vector<T> a, Vector<T> b, Vector<T> sum) {
  if constexpr (into == Into::Subtract) {
    return subtract_product(a, b, sum);
  } else {
    return multiply_add(a, b, sum);
  }
}

template <Sum sum>
[[gnu::always_inline]] inline constexpr bool enters(int64_t row, int64_t p) {
  switch (sum) {
    case Sum::Full: return true;
    case Sum::UpToRow: return p <= row;
    case Sum::BeforeRow: return p < row;
    case Sum::FromRow: return p >= row;
    case Sum::AfterRow: return p > row;
  }
  return true;
}

// Rows [i0, i0 + 4) of two vectors of columns.
template <Sum sum, Into into, class T>
[[gnu::always_inline]] inline void product_block(int64_t i0, int64_t k, Strided<T> a, const T* b, int64_t ldb, T* c, int64_t ldc) {
  constexpr int64_t lanes = kLanes<T>;
  Vector<T> sums[kRowBlock][2];
#pragma GCC unroll 4
  for (int64_t r = 0; r < kRowBlock; ++r) {
    if constexpr (into == Into::Set) {
      sums[r][0] = Vector<T>{};
      sums[r][1] = Vector<T>{};
    } else {
      sums[r][0] = load(c + r * ldc);
      sums[r][1] = load(c + r * ldc + lanes);
    }
  }
  const T* rows = a.data + i0 * a.row;
  const auto all_rows = [&](int64_t from, int64_t to) __attribute__((always_inline)) {
    for (int64_t p = from; p < to; ++p) {
      const Vector<T> b0 = load(b + p * ldb);
      const Vector<T> b1 = load(b + p * ldb + lanes);
#pragma GCC unroll 4
      for (int64_t r = 0; r < kRowBlock; ++r) {
        const Vector<T> value = broadcast(rows[r * a.row + p * a.column]);
        sums[r][0] = step<into, T>(value, b0, sums[r][0]);
        sums[r][1] = step<into, T>(value, b1, sums[r][1]);
      }
    }
  };
  const auto diagonal = [&]() __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int64_t d = 0; d < kRowBlock; ++d) {
      const int64_t p = i0 + d;
      const Vector<T> b0 = load(b + p * ldb);
      const Vector<T> b1 = load(b + p * ldb + lanes);
#pragma GCC unroll 4
      for (int64_t r = 0; r < kRowBlock; ++r) {
        if (enters<sum>(r, d)) {
          const Vector<T> value = broadcast(rows[r * a.row + p * a.column]);
          sums[r][0] = step<into, T>(value, b0, sums[r][0]);
          sums[r][1] = step<into, T>(value, b1, sums[r][1]);
        }
      }
    }
  };
  if constexpr (sum == Sum::Full) {
    all_rows(0, k);
  } else if constexpr (sum == Sum::UpToRow || sum == Sum::BeforeRow) {
    all_rows(0, i0);
    diagonal();
  } else {
    diagonal();
    all_rows(i0 + kRowBlock, k);
  }
#pragma GCC unroll 4
  for (int64_t r = 0; r < kRowBlock; ++r) {
    store(c + r * ldc, sums[r][0]);
    store(c + r * ldc + lanes, sums[r][1]);
  }
}

}  // namespace detail

// C[m, n] (=, +=, -=) A[m, k] B[k, n], summed over the p that `sum` admits. Triangular sums need m <= k.
template <Sum sum, Into into, class T>
void product(int64_t m, int64_t n, int64_t k, Strided<T> a, const T* b, int64_t ldb, T* c, int64_t ldc) {
  for (int64_t j = 0; j < n; j += 2 * kLanes<T>) {
    for (int64_t i = 0; i < m; i += kRowBlock) {
      detail::product_block<sum, into, T>(i, k, a, b + j, ldb, c + i * ldc + j, ldc);
    }
  }
}

// to[j, i] = from[i, j] for [rows, columns], multiples of 4.
template <class T>
void transpose(int64_t rows, int64_t columns, const T* from, int64_t ld_from, T* to, int64_t ld_to) {
  constexpr int64_t block = 8;
  for (int64_t i0 = 0; i0 < rows; i0 += block) {
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = i0; i < i0 + block; ++i) {
        to[j * ld_to + i] = from[i * ld_from + j];
      }
    }
  }
}

}  // namespace longhaul::tiles
