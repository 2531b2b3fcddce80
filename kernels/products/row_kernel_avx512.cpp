// Twelve rows by one register, or by two of doubles in turn. Compiled for AVX-512 and called only where it is there.
#include "kernels/products/row_kernel.h"

#if defined(__AVX512F__)
#include <immintrin.h>

#include "kernels/products/row_kernel_lanes.h"

namespace longhaul::cpu {
namespace {

struct FloatLanes {
  using Scalar = float;
  using Register = __m512;
  static constexpr int64_t kWidth = 16, kRegisters = 1;
  static Register zero() { return _mm512_setzero_ps(); }
  static Register load(const float* p) { return _mm512_loadu_ps(p); }
  static Register broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Register fma(Register a, Register b, Register c) { return _mm512_fmadd_ps(a, b, c); }
  static void store(float* p, Register x) { _mm512_storeu_ps(p, x); }
};
struct DoubleLanes {
  using Scalar = double;
  using Register = __m512d;
  static constexpr int64_t kWidth = 8, kRegisters = 2;
  static Register zero() { return _mm512_setzero_pd(); }
  static Register load(const double* p) { return _mm512_loadu_pd(p); }
  static Register broadcast(const double* p) { return _mm512_set1_pd(*p); }
  static Register fma(Register a, Register b, Register c) { return _mm512_fmadd_pd(a, b, c); }
  static void store(double* p, Register x) { _mm512_storeu_pd(p, x); }
};

}  // namespace

template <>
RowKernel<float> avx512_row_kernel() {
  return {multiply_rows<FloatLanes, kMaxKernelRows>, kMaxKernelRows};
}
template <>
RowKernel<double> avx512_row_kernel() {
  return {multiply_rows<DoubleLanes, kMaxKernelRows>, kMaxKernelRows};
}

}  // namespace longhaul::cpu
#else
namespace longhaul::cpu {
template <>
RowKernel<float> avx512_row_kernel() {
  return {};
}
template <>
RowKernel<double> avx512_row_kernel() {
  return {};
}
}  // namespace longhaul::cpu
#endif
