// See cuda_blas.h. cuBLASLt thinks in columns: a row-major matrix is its transpose there, so C = A B is computed as
// C^T = B^T A^T, with the operands exchanged and their transposes kept.
#include "device/cuda_blas.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/cast.h"
#include "base/error.h"
#include "device/buffer.h"
#include "device/cuda_check.h"

namespace longhaul {
namespace {

void check(cublasStatus_t status, const char* what, const CudaGemm& op) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw DeviceError("cuBLASLt error {} from {}: product [{}, {}] x [{}, {}] with row strides {}, {} and {}", cublasLtGetStatusString(status),
                      what, op.m, op.k, op.k, op.n, op.lda, op.ldb, op.ldc);
  }
}

cudaDataType_t to_cuda(BlasType type) { return type == BlasType::BF16 ? CUDA_R_16BF : CUDA_R_32F; }
cublasOperation_t to_cublas(blas::Transpose t) { return t == blas::Transpose::Yes ? CUBLAS_OP_T : CUBLAS_OP_N; }

// The power of two, up to 256, that divides an address: faster kernels need more.
int64_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data) | 256u;
  return static_cast<int64_t>(address & (~address + 1));
}

// Everything that the choice of a kernel depends on.
using Key = std::array<int64_t, 13>;
Key key_of(const CudaGemm& op) {
  return {op.m, op.n, op.k, op.lda, op.ldb, op.ldc, static_cast<int64_t>(op.ta), static_cast<int64_t>(op.tb), static_cast<int64_t>(op.in),
          static_cast<int64_t>(op.out), alignment_of(op.a), alignment_of(op.b), 2 * alignment_of(op.c) + (op.beta != 0 ? 1 : 0)};
}

struct Plan {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t a, b, c;  // of the row-major operands
  cublasLtMatmulAlgo_t algorithm;
};

// The layout of a stored row-major matrix of `rows` by `columns`, as cuBLASLt sees it.
void describe(cublasLtMatrixLayoutOpaque_t& layout, BlasType type, int64_t rows, int64_t columns, int64_t stride, const CudaGemm& op) {
  check(cublasLtMatrixLayoutInit(&layout, to_cuda(type), static_cast<uint64_t>(columns), static_cast<uint64_t>(rows), stride),
        "cublasLtMatrixLayoutInit", op);
}

Plan make_plan(cublasLtHandle_t handle, int64_t workspace_bytes, const CudaGemm& op) {
  Plan plan;
  check(cublasLtMatmulDescInit(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit", op);
  const cublasOperation_t first = to_cublas(op.tb), second = to_cublas(op.ta);
  check(cublasLtMatmulDescSetAttribute(&plan.product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first)), "transpose", op);
  check(cublasLtMatmulDescSetAttribute(&plan.product, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second)), "transpose", op);
  const bool a_stands = op.ta == blas::Transpose::No, b_stands = op.tb == blas::Transpose::No;
  describe(plan.a, op.in, a_stands ? op.m : op.k, a_stands ? op.k : op.m, op.lda, op);
  describe(plan.b, op.in, b_stands ? op.k : op.n, b_stands ? op.n : op.k, op.ldb, op);
  describe(plan.c, op.out, op.m, op.n, op.ldc, op);

  cublasLtMatmulPreferenceOpaque_t preference;
  check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit", op);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)), "preference", op);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes));
  // A sum split over blocks meets in fp32 and in a fixed order, not in the type of C.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(alignment_of(op.b)));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(alignment_of(op.a)));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(alignment_of(op.c)));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(alignment_of(op.c)));
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle, &plan.product, &plan.b, &plan.a, &plan.c, &plan.c, &preference, 1, &result, &found),
        "cublasLtMatmulAlgoGetHeuristic", op);
  LH_CHECK(found > 0, "cuBLASLt knows no kernel for the product [{}, {}] x [{}, {}]", op.m, op.k, op.k, op.n);
  plan.algorithm = result.algo;
  return plan;
}

}  // namespace

struct CudaBlas::State {
  cublasLtHandle_t handle = nullptr;
  Buffer workspace;
  std::map<Key, Plan> plans;
};

CudaBlas::CudaBlas(Device device, int64_t workspace_bytes) : state_(std::make_unique<State>()) {
  state_->workspace = Buffer(device, workspace_bytes);
  const cublasStatus_t status = cublasLtCreate(&state_->handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw DeviceError("cuBLASLt could not be started on {}: {}", to_string(device), cublasLtGetStatusString(status));
  }
}

CudaBlas::~CudaBlas() {
  if (state_->handle != nullptr) {
    static_cast<void>(cublasLtDestroy(state_->handle));
  }
}

void CudaBlas::gemm(StreamView stream, const CudaGemm& op) {
  LH_CHECK(op.out == BlasType::F32 || op.out == op.in, "a product of floats cannot be stored as bf16");
  if (op.m == 0 || op.n == 0) {
    return;
  }
  if (op.k == 0) {
    if (op.beta == 0) {
      const int64_t size = op.out == BlasType::BF16 ? 2 : 4;
      LH_CUDA(cudaMemset2DAsync(op.c, static_cast<size_t>(op.ldc * size), 0, static_cast<size_t>(op.n * size), static_cast<size_t>(op.m),
                                stream.handle()));
    }
    return;
  }
  const Key key = key_of(op);
  auto found = state_->plans.find(key);
  if (found == state_->plans.end()) {
    found = state_->plans.emplace(key, make_plan(state_->handle, state_->workspace.bytes(), op)).first;
  }
  Plan& plan = found->second;  // cuBLASLt takes no const
  const float alpha = 1;
  check(cublasLtMatmul(state_->handle, &plan.product, &alpha, op.b, &plan.b, op.a, &plan.a, &op.beta, op.c, &plan.c, op.c, &plan.c,
                       &plan.algorithm, state_->workspace.data(), static_cast<size_t>(state_->workspace.bytes()), stream.handle()),
        "cublasLtMatmul", op);
}

}  // namespace longhaul
