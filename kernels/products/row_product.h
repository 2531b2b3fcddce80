// Matrix products whose rows are independent, bit for bit: an element of the result is one chain of fused multiply-adds
// over k in ascending order, whatever the number of rows, their order, or the machine. BLAS gives no such promise (its
// small-matrix and edge kernels round differently), and then a token's activations would depend on which other tokens
// share its micro-batch, and near-tied experts would flip with the layout.
#pragma once

#include <cstdint>

#include "kernels/linear/linear.h"

namespace longhaul::cpu {

// Columns that are computed together; a packed panel of the right factor is [k, kPanelColumns].
inline constexpr int64_t kPanelColumns = 16;

enum class RightFactor : uint8_t {
  Transposed,  // C = A W^T with W [n, k]
  Plain,       // C = A W   with W [k, n]
};

template <class T>
struct RowProduct {
  int64_t rows = 0, n = 0, k = 0;
  const T* a = nullptr;  // [rows, k], rows lda apart
  int64_t lda = 0;
  const T* w = nullptr;  // see RightFactor, rows ldw apart
  int64_t ldw = 0;
  RightFactor right = RightFactor::Transposed;
  T* c = nullptr;  // [rows, n], rows ldc apart
  int64_t ldc = 0;
  Accumulate accumulate = Accumulate::Overwrite;  // Add: the finished sum is added to C
  T* panel = nullptr;                             // scratch, k * kPanelColumns elements
};

// T is float or double.
template <class T>
void row_product(const RowProduct<T>& op);

}  // namespace longhaul::cpu
