// See row_product.h. Panels of the right factor are packed once and stay in the nearest caches; six rows by sixteen
// columns are accumulated in registers. Without AVX2 and FMA the same chains run on std::fma: slow, and equal.
#include "kernels/products/row_product.h"

#include <algorithm>
#include <cmath>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define LH_ROW_PRODUCT_AVX2 1
#endif

namespace longhaul::cpu {
namespace {

constexpr int64_t kRows = 6;

#ifdef LH_ROW_PRODUCT_AVX2
// A register of T, so that one kernel serves both types.
struct FloatLanes {
  using Scalar = float;
  using Register = __m256;
  static constexpr int64_t kWidth = 8;
  static Register zero() { return _mm256_setzero_ps(); }
  static Register load(const float* p) { return _mm256_loadu_ps(p); }
  static Register broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static Register fma(Register a, Register b, Register c) { return _mm256_fmadd_ps(a, b, c); }
  static void store(float* p, Register x) { _mm256_storeu_ps(p, x); }
};
struct DoubleLanes {
  using Scalar = double;
  using Register = __m256d;
  static constexpr int64_t kWidth = 4;
  static Register zero() { return _mm256_setzero_pd(); }
  static Register load(const double* p) { return _mm256_loadu_pd(p); }
  static Register broadcast(const double* p) { return _mm256_broadcast_sd(p); }
  static Register fma(Register a, Register b, Register c) { return _mm256_fmadd_pd(a, b, c); }
  static void store(double* p, Register x) { _mm256_storeu_pd(p, x); }
};
template <class T>
using Lanes = std::conditional_t<std::is_same_v<T, float>, FloatLanes, DoubleLanes>;

// sums[Rows, kColumns] = rows of a times kColumns columns of the panel, in two registers a row.
template <int64_t Rows, class T>
void multiply(const T* a, int64_t lda, const T* panel, int64_t k, T* sums) {
  using L = Lanes<T>;
  constexpr int64_t kColumns = 2 * L::kWidth;
  for (int64_t column = 0; column < kPanelColumns; column += kColumns) {
    typename L::Register low[Rows];
    typename L::Register high[Rows];
    for (int64_t r = 0; r < Rows; ++r) {
      low[r] = high[r] = L::zero();
    }
    const T* b = panel + column;
    for (int64_t i = 0; i < k; ++i, b += kPanelColumns) {
      const auto b_low = L::load(b);
      const auto b_high = L::load(b + L::kWidth);
      for (int64_t r = 0; r < Rows; ++r) {
        const auto x = L::broadcast(a + r * lda + i);
        low[r] = L::fma(x, b_low, low[r]);
        high[r] = L::fma(x, b_high, high[r]);
      }
    }
    for (int64_t r = 0; r < Rows; ++r) {
      L::store(sums + r * kPanelColumns + column, low[r]);
      L::store(sums + r * kPanelColumns + column + L::kWidth, high[r]);
    }
  }
}
#else
template <int64_t Rows, class T>
void multiply(const T* a, int64_t lda, const T* panel, int64_t k, T* sums) {
  std::fill_n(sums, Rows * kPanelColumns, T{0});
  for (int64_t r = 0; r < Rows; ++r) {
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = 0; j < kPanelColumns; ++j) {
        sums[r * kPanelColumns + j] = std::fma(a[r * lda + i], panel[i * kPanelColumns + j], sums[r * kPanelColumns + j]);
      }
    }
  }
}
#endif

template <class T>
void multiply_rows(int64_t rows, const T* a, int64_t lda, const T* panel, int64_t k, T* sums) {
  switch (rows) {
    case 1: multiply<1>(a, lda, panel, k, sums); return;
    case 2: multiply<2>(a, lda, panel, k, sums); return;
    case 3: multiply<3>(a, lda, panel, k, sums); return;
    case 4: multiply<4>(a, lda, panel, k, sums); return;
    case 5: multiply<5>(a, lda, panel, k, sums); return;
    default: multiply<kRows>(a, lda, panel, k, sums); return;
  }
}

// Columns [first, first + columns) of the right factor, zeros behind them.
template <class T>
void pack(const RowProduct<T>& op, int64_t first, int64_t columns) {
  for (int64_t i = 0; i < op.k; ++i) {
    T* row = op.panel + i * kPanelColumns;
    for (int64_t j = 0; j < columns; ++j) {
      row[j] = op.right == RightFactor::Plain ? op.w[i * op.ldw + first + j] : op.w[(first + j) * op.ldw + i];
    }
    std::fill(row + columns, row + kPanelColumns, T{0});
  }
}

}  // namespace

template <class T>
void row_product(const RowProduct<T>& op) {
  T sums[kRows * kPanelColumns];
  for (int64_t first = 0; first < op.n && op.rows > 0; first += kPanelColumns) {
    const int64_t columns = std::min(kPanelColumns, op.n - first);
    pack(op, first, columns);
    for (int64_t row = 0; row < op.rows; row += kRows) {
      const int64_t rows = std::min(kRows, op.rows - row);
      multiply_rows(rows, op.a + row * op.lda, op.lda, op.panel, op.k, sums);
      for (int64_t r = 0; r < rows; ++r) {
        T* c = op.c + (row + r) * op.ldc + first;
        const T* sum = sums + r * kPanelColumns;
        for (int64_t j = 0; j < columns; ++j) {
          c[j] = op.accumulate == Accumulate::Add ? c[j] + sum[j] : sum[j];
        }
      }
    }
  }
}

template void row_product<float>(const RowProduct<float>&);
template void row_product<double>(const RowProduct<double>&);

}  // namespace longhaul::cpu
