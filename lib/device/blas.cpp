// See blas.h.
#include "device/blas.h"

#include <cblas.h>

#include <chrono>

#include "base/cast.h"

namespace longhaul::blas {
namespace {

thread_local double gemm_seconds = 0;  // a measurement, not state that results depend on

class Timed {
 public:
  Timed() : start_(std::chrono::steady_clock::now()) {}
  ~Timed() { gemm_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_;
};

CBLAS_TRANSPOSE to_cblas(Transpose t) { return t == Transpose::Yes ? CblasTrans : CblasNoTrans; }

}  // namespace

void gemm(Transpose ta, Transpose tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  if (m == 0 || n == 0) {
    return;
  }
  const Timed timed;
  cblas_sgemm(CblasRowMajor, to_cblas(ta), to_cblas(tb), narrow<blasint>(m), narrow<blasint>(n), narrow<blasint>(k),
              alpha, a, narrow<blasint>(lda), b, narrow<blasint>(ldb), beta, c, narrow<blasint>(ldc));
}

void gemm(Transpose ta, Transpose tb, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
          const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  if (m == 0 || n == 0) {
    return;
  }
  const Timed timed;
  cblas_dgemm(CblasRowMajor, to_cblas(ta), to_cblas(tb), narrow<blasint>(m), narrow<blasint>(n), narrow<blasint>(k),
              alpha, a, narrow<blasint>(lda), b, narrow<blasint>(ldb), beta, c, narrow<blasint>(ldc));
}

void set_threads(int threads) { openblas_set_num_threads(threads); }

double seconds_in_gemm() noexcept { return gemm_seconds; }

}  // namespace longhaul::blas
