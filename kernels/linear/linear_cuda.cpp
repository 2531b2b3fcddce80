// The products of a linear map through cuBLASLt. Sums are in fp32. A gradient dy in fp32 beside bf16 weights is rounded to
// bf16 first: the tensor cores take both factors in one type.
#include "kernels/linear/linear_cuda.h"

#include "kernels/elementwise/elementwise.h"

namespace longhaul::cuda {
namespace {

using blas::Transpose;

BlasType blas_type(const TensorView& view) {
  if (view.dtype() == DType::BF16) {
    return BlasType::BF16;
  }
  if (view.dtype() != DType::F32) {
    throw_wrong_type("linear", "the CUDA backend", "f32 or bf16", view.dtype());
  }
  return BlasType::F32;
}

}  // namespace

void linear_forward(ExecContext& ctx, const LinearForward& op) {
  CudaContext& cuda = ctx.cuda_context();
  cuda.blas().gemm(cuda.stream(), {.tb = Transpose::Yes, .m = op.x.size(0), .n = op.weight.size(0), .k = op.x.size(1), .in = blas_type(op.x),
                                   .a = op.x.raw(), .lda = op.x.stride(0), .b = op.weight.raw(), .ldb = op.weight.stride(0), .out = blas_type(op.y),
                                   .c = op.y.raw(), .ldc = op.y.stride(0), .beta = op.accumulate == Accumulate::Add ? 1.0f : 0.0f});
}

void linear_backward(ExecContext& ctx, const LinearBackward& op, const TensorView& rounded_dy) {
  CudaContext& cuda = ctx.cuda_context();
  const int64_t tokens = op.x.size(0), in = op.x.size(1), out = op.dy.size(1);
  TensorView dy = op.dy;
  if (dy.dtype() != op.x.dtype()) {
    copy(ctx, dy, rounded_dy);
    dy = rounded_dy;
  }
  if (op.dx.is_present()) {
    cuda.blas().gemm(cuda.stream(), {.m = tokens, .n = in, .k = out, .in = blas_type(dy), .a = dy.raw(), .lda = dy.stride(0), .b = op.weight.raw(),
                                     .ldb = op.weight.stride(0), .out = blas_type(op.dx), .c = op.dx.raw(), .ldc = op.dx.stride(0),
                                     .beta = op.accumulate_dx == Accumulate::Add ? 1.0f : 0.0f});
  }
  if (op.dweight.is_present() && tokens > 0) {
    cuda.blas().gemm(cuda.stream(), {.ta = Transpose::Yes, .m = out, .n = in, .k = tokens, .in = blas_type(dy), .a = dy.raw(), .lda = dy.stride(0),
                                     .b = op.x.raw(), .ldb = op.x.stride(0), .out = blas_type(op.dweight), .c = op.dweight.raw(),
                                     .ldc = op.dweight.stride(0), .beta = 1});
  }
}

}  // namespace longhaul::cuda
