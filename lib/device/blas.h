// Matrix products on the CPU through OpenBLAS, row-major, typed by overloads.
#pragma once

#include <cstdint>

namespace longhaul::blas {

enum class Transpose : uint8_t { No, Yes };

// C[m,n] = alpha * op(A)[m,k] * op(B)[k,n] + beta * C, row-major; ld* is the row stride of the stored matrix.
// With beta == 0, C is written without being read (NaN in C does not spread).
void gemm(Transpose ta, Transpose tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
void gemm(Transpose ta, Transpose tb, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
          const double* b, int64_t ldb, double beta, double* c, int64_t ldc);

// Number of threads BLAS may use in this process. Ranks are the parallelism of the CPU backend, so it is 1 there.
void set_threads(int threads);

// Seconds spent in gemm by this thread since the start, for the profile that `train` prints.
[[nodiscard]] double seconds_in_gemm() noexcept;

}  // namespace longhaul::blas
