// Matrix products on the GPU through cuBLASLt, row-major. Sums are in fp32; TF32 is never used. Plans are chosen by
// cuBLASLt's heuristic once for each shape and kept. No CUDA headers.
#pragma once

#include <cstdint>
#include <memory>

#include "device/blas.h"
#include "device/cuda_stream.h"
#include "device/device.h"

namespace longhaul {

enum class BlasType : uint8_t { F32, BF16 };

// C[m,n] = op(A)[m,k] * op(B)[k,n] + beta * C; ld* is the row stride of the stored matrix in elements.
struct CudaGemm {
  blas::Transpose ta = blas::Transpose::No, tb = blas::Transpose::No;
  int64_t m = 0, n = 0, k = 0;
  BlasType in = BlasType::F32;  // of A and B
  const void* a = nullptr;
  int64_t lda = 0;
  const void* b = nullptr;
  int64_t ldb = 0;
  BlasType out = BlasType::F32;  // of C: F32, or the type of A and B
  void* c = nullptr;
  int64_t ldc = 0;
  float beta = 0;  // 0: C is written without being read
};

class CudaBlas {
 public:
  // `workspace_bytes` of device memory serve products that split their sum; one stream at a time may use them.
  CudaBlas(Device device, int64_t workspace_bytes);
  ~CudaBlas();
  CudaBlas(const CudaBlas&) = delete;
  CudaBlas& operator=(const CudaBlas&) = delete;

  // Enqueues the product. The same arguments give the same bits. DeviceError when cuBLASLt refuses.
  void gemm(StreamView stream, const CudaGemm& op);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
