// Six rows by two registers: twelve chains in flight cover the latency of the multiply-add.
#include "kernels/products/row_kernel.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

#include "kernels/products/row_kernel_lanes.h"

namespace longhaul::cpu {
namespace {

struct FloatLanes {
  using Scalar = float;
  using Register = __m256;
  static constexpr int64_t kWidth = 8, kRegisters = 2;
  static Register zero() { return _mm256_setzero_ps(); }
  static Register load(const float* p) { return _mm256_loadu_ps(p); }
  static Register broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static Register fma(Register a, Register b, Register c) { return _mm256_fmadd_ps(a, b, c); }
  static void store(float* p, Register x) { _mm256_storeu_ps(p, x); }
};
struct DoubleLanes {
  using Scalar = double;
  using Register = __m256d;
  static constexpr int64_t kWidth = 4, kRegisters = 2;
  static Register zero() { return _mm256_setzero_pd(); }
  static Register load(const double* p) { return _mm256_loadu_pd(p); }
  static Register broadcast(const double* p) { return _mm256_broadcast_sd(p); }
  static Register fma(Register a, Register b, Register c) { return _mm256_fmadd_pd(a, b, c); }
  static void store(double* p, Register x) { _mm256_storeu_pd(p, x); }
};

}  // namespace

template <>
RowKernel<float> avx2_row_kernel() {
  return {multiply_rows<FloatLanes, 6>, 6};
}
template <>
RowKernel<double> avx2_row_kernel() {
  return {multiply_rows<DoubleLanes, 6>, 6};
}

}  // namespace longhaul::cpu
#else
namespace longhaul::cpu {
template <>
RowKernel<float> avx2_row_kernel() {
  return {};
}
template <>
RowKernel<double> avx2_row_kernel() {
  return {};
}
}  // namespace longhaul::cpu
#endif
