// The inner kernel of row_product in the instruction sets it is written for. All give the same bits: the chain of an
// element does not change with the width of the registers that hold its neighbours.
#pragma once

#include <cstdint>

namespace longhaul::cpu {

// sums[rows, kPanelColumns] = rows of `a` (lda apart) times a panel [k, kPanelColumns]; rows in [1, max_rows].
template <class T>
struct RowKernel {
  void (*multiply)(int64_t rows, const T* a, int64_t lda, const T* panel, int64_t k, T* sums) = nullptr;
  int64_t max_rows = 0;
};
inline constexpr int64_t kMaxKernelRows = 12;

// Whatever machine: std::fma, slow without the instruction.
template <class T>
RowKernel<T> portable_row_kernel();
// Null where the compiler cannot build it.
template <class T>
RowKernel<T> avx2_row_kernel();
template <class T>
RowKernel<T> avx512_row_kernel();
template <>
RowKernel<float> avx2_row_kernel<float>();
template <>
RowKernel<double> avx2_row_kernel<double>();
template <>
RowKernel<float> avx512_row_kernel<float>();
template <>
RowKernel<double> avx512_row_kernel<double>();

// The fastest that this processor runs.
template <class T>
RowKernel<T> best_row_kernel();

}  // namespace longhaul::cpu
