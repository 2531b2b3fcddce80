// Small dense matrices and the product of a tensor core: operands rounded, sums in T. With float it is that of a 16-bit type;
// with double that of a type with the same significand and no limits of range (precision.h).
#pragma once

#include <cstdint>
#include <vector>

#include "tools/decay_scan/precision.h"

namespace longhaul::decay {

template <class T>
struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<T> values;  // row-major

  Matrix() = default;
  Matrix(int64_t r, int64_t c) : rows(r), columns(c), values(static_cast<size_t>(r * c)) {}

  [[nodiscard]] T* row(int64_t i) { return values.data() + i * columns; }
  [[nodiscard]] const T* row(int64_t i) const { return values.data() + i * columns; }
  [[nodiscard]] T& operator()(int64_t i, int64_t j) { return values[static_cast<size_t>(i * columns + j)]; }
  [[nodiscard]] T operator()(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * columns + j)]; }
};

template <class T>
[[nodiscard]] Matrix<T> transposed(const Matrix<T>& m);
template <class T>
[[nodiscard]] Matrix<T> rows_of(const Matrix<T>& m, int64_t begin, int64_t end);
// a_ij b_ij, and a_ij f_i.
template <class T>
[[nodiscard]] Matrix<T> times(const Matrix<T>& a, const Matrix<T>& b);
template <class T>
[[nodiscard]] Matrix<T> times_rows(const Matrix<T>& a, const std::vector<T>& factors);
template <class T>
void add_to(Matrix<T>& sum, const Matrix<T>& m);

// Products of a precision. Every element of an operand takes part, also where it is zero: 0 times infinity is NaN, as it is
// on a tensor core.
template <class T>
class TensorCore {
 public:
  explicit TensorCore(Precision precision) : precision_(precision) {}

  [[nodiscard]] Matrix<T> rounded(Matrix<T> m) const;
  // a [m, k] b [k, n]
  [[nodiscard]] Matrix<T> product(const Matrix<T>& a, const Matrix<T>& b) const;

 private:
  Precision precision_;
};

}  // namespace longhaul::decay
