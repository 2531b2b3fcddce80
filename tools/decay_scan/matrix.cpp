// See matrix.h.
#include "tools/decay_scan/matrix.h"

#include <algorithm>
#include <functional>

#include "base/error.h"

namespace longhaul::decay {

template <class T>
Matrix<T> transposed(const Matrix<T>& m) {
  Matrix<T> out(m.columns, m.rows);
  for (int64_t i = 0; i < m.rows; ++i) {
    for (int64_t j = 0; j < m.columns; ++j) {
      out(j, i) = m(i, j);
    }
  }
  return out;
}

template <class T>
Matrix<T> rows_of(const Matrix<T>& m, int64_t begin, int64_t end) {
  Matrix<T> out(end - begin, m.columns);
  std::copy(m.row(begin), m.row(end), out.values.begin());
  return out;
}

template <class T>
Matrix<T> times(const Matrix<T>& a, const Matrix<T>& b) {
  LH_CHECK(a.rows == b.rows && a.columns == b.columns, "{} x {} and {} x {}", a.rows, a.columns, b.rows, b.columns);
  Matrix<T> out(a.rows, a.columns);
  std::transform(a.values.begin(), a.values.end(), b.values.begin(), out.values.begin(), std::multiplies<>());
  return out;
}

template <class T>
Matrix<T> times_rows(const Matrix<T>& a, const std::vector<T>& factors) {
  Matrix<T> out = a;
  for (int64_t i = 0; i < a.rows; ++i) {
    std::for_each(out.row(i), out.row(i) + a.columns, [&](T& x) { x *= factors[static_cast<size_t>(i)]; });
  }
  return out;
}

template <class T>
void add_to(Matrix<T>& sum, const Matrix<T>& m) {
  LH_CHECK(sum.values.size() == m.values.size(), "{} and {} values", sum.values.size(), m.values.size());
  std::transform(sum.values.begin(), sum.values.end(), m.values.begin(), sum.values.begin(), std::plus<>());
}

template <class T>
Matrix<T> TensorCore<T>::rounded(Matrix<T> m) const {
  for (T& x : m.values) {
    x = round_to(precision_, x);
  }
  return m;
}

template <class T>
Matrix<T> TensorCore<T>::product(const Matrix<T>& a, const Matrix<T>& b) const {
  LH_CHECK(a.columns == b.rows, "{} x {} times {} x {}", a.rows, a.columns, b.rows, b.columns);
  const Matrix<T> left = rounded(a), right = rounded(b);
  Matrix<T> out(a.rows, b.columns);
  for (int64_t i = 0; i < a.rows; ++i) {
    T* sum = out.row(i);
    for (int64_t p = 0; p < a.columns; ++p) {
      const T factor = left(i, p);
      const T* from = right.row(p);
      for (int64_t j = 0; j < b.columns; ++j) {
        sum[j] += factor * from[j];
      }
    }
  }
  return out;
}

#define LH_INSTANTIATE(T)                                                    \
  template Matrix<T> transposed(const Matrix<T>&);                           \
  template Matrix<T> rows_of(const Matrix<T>&, int64_t, int64_t);            \
  template Matrix<T> times(const Matrix<T>&, const Matrix<T>&);              \
  template Matrix<T> times_rows(const Matrix<T>&, const std::vector<T>&);    \
  template void add_to(Matrix<T>&, const Matrix<T>&);                        \
  template class TensorCore<T>
LH_INSTANTIATE(float);
LH_INSTANTIATE(double);
#undef LH_INSTANTIATE

}  // namespace longhaul::decay
