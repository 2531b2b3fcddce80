// Three matrix products through BLAS; strided rows are leading dimensions.
#include "kernels/linear/linear_cpu.h"

#include <algorithm>

#include "device/blas.h"

namespace longhaul::cpu {
namespace {

using blas::Transpose;

// BLAS wants at least the row length, which the stride of an empty or single-row view need not be.
int64_t leading_dimension(const TensorView& view) { return std::max({view.stride(0), view.size(1), int64_t{1}}); }

}  // namespace

void linear_forward(const LinearForward& op) {
  dispatch_float(op.x.dtype(), "linear_forward", [&](auto zero) {
    using T = decltype(zero);
    const T beta = op.accumulate == Accumulate::Add ? T{1} : T{0};
    blas::gemm(Transpose::No, Transpose::Yes, op.x.size(0), op.weight.size(0), op.x.size(1), T{1}, op.x.data<T>(),
               leading_dimension(op.x), op.weight.data<T>(), leading_dimension(op.weight), beta, op.y.data<T>(),
               leading_dimension(op.y));
  });
}

void linear_backward(const LinearBackward& op) {
  const int64_t tokens = op.x.size(0);
  const int64_t in = op.x.size(1);
  const int64_t out = op.dy.size(1);
  dispatch_float(op.x.dtype(), "linear_backward", [&](auto zero) {
    using T = decltype(zero);
    const T* dy = op.dy.data<T>();
    if (op.dx.is_present()) {
      const T beta = op.accumulate_dx == Accumulate::Add ? T{1} : T{0};
      blas::gemm(Transpose::No, Transpose::No, tokens, in, out, T{1}, dy, leading_dimension(op.dy), op.weight.data<T>(),
                 leading_dimension(op.weight), beta, op.dx.data<T>(), leading_dimension(op.dx));
    }
    if (op.dweight.is_present() && tokens > 0) {
      blas::gemm(Transpose::Yes, Transpose::No, out, in, tokens, T{1}, dy, leading_dimension(op.dy), op.x.data<T>(),
                 leading_dimension(op.x), T{1}, op.dweight.data<T>(), leading_dimension(op.dweight));
    }
  });
}

}  // namespace longhaul::cpu
