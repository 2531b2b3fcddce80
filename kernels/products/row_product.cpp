// See row_product.h. Panels of the right factor are packed once and stay in the nearest caches; blocks of rows pass by.
#include "kernels/products/row_product.h"

#include <algorithm>
#include <cmath>

#include "base/profile.h"
#include "kernels/products/row_kernel.h"

namespace longhaul::cpu {
namespace {

template <class T>
void multiply_portably(int64_t rows, const T* a, int64_t lda, const T* panel, int64_t k, T* sums) {
  std::fill_n(sums, rows * kPanelColumns, T{0});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = 0; j < kPanelColumns; ++j) {
        sums[r * kPanelColumns + j] = std::fma(a[r * lda + i], panel[i * kPanelColumns + j], sums[r * kPanelColumns + j]);
      }
    }
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
RowKernel<T> portable_row_kernel() {
  return {multiply_portably<T>, kMaxKernelRows};
}

template <class T>
RowKernel<T> best_row_kernel() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && avx512_row_kernel<T>().multiply != nullptr) {
    return avx512_row_kernel<T>();
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && avx2_row_kernel<T>().multiply != nullptr) {
    return avx2_row_kernel<T>();
  }
#endif
  return portable_row_kernel<T>();
}

template <class T>
void row_product(const RowProduct<T>& op) {
  const ProfileScope profile("row products");
  const RowKernel<T> kernel = best_row_kernel<T>();
  T sums[kMaxKernelRows * kPanelColumns];
  for (int64_t first = 0; first < op.n && op.rows > 0; first += kPanelColumns) {
    const int64_t columns = std::min(kPanelColumns, op.n - first);
    pack(op, first, columns);
    for (int64_t row = 0; row < op.rows; row += kernel.max_rows) {
      const int64_t rows = std::min(kernel.max_rows, op.rows - row);
      kernel.multiply(rows, op.a + row * op.lda, op.lda, op.panel, op.k, sums);
      for (int64_t r = 0; r < rows; ++r) {
        T* c = op.c + (row + r) * op.ldc + first;
        const T* sum = sums + r * kPanelColumns;
        if (op.accumulate == Accumulate::Add) {
          for (int64_t j = 0; j < columns; ++j) {
            c[j] += sum[j];
          }
        } else {
          std::copy_n(sum, columns, c);
        }
      }
    }
  }
}

template void row_product<float>(const RowProduct<float>&);
template void row_product<double>(const RowProduct<double>&);
template RowKernel<float> portable_row_kernel<float>();
template RowKernel<double> portable_row_kernel<double>();
template RowKernel<float> best_row_kernel<float>();
template RowKernel<double> best_row_kernel<double>();

}  // namespace longhaul::cpu
