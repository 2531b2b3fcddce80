// The products of a linear map. Activations through row_product, so that a token's result depends on no other token;
// weight gradients summed over tokens in double.
#include "kernels/linear/linear_cpu.h"

#include "device/blas.h"
#include "kernels/products/gradient_product.h"
#include "kernels/products/row_product.h"

namespace longhaul::cpu {

void linear_forward(const LinearForward& op, const LinearScratch& scratch) {
  dispatch_float(op.x.dtype(), "linear_forward", [&](auto zero) {
    using T = decltype(zero);
    row_product<T>({.rows = op.x.size(0), .n = op.weight.size(0), .k = op.x.size(1), .a = op.x.data<T>(), .lda = op.x.stride(0),
                    .w = op.weight.data<T>(), .ldw = op.weight.stride(0), .right = RightFactor::Transposed, .c = op.y.data<T>(),
                    .ldc = op.y.stride(0), .accumulate = op.accumulate, .panel = scratch.panel.data<T>()});
  });
}

void linear_backward(const LinearBackward& op, const LinearScratch& scratch) {
  const int64_t tokens = op.x.size(0);
  const int64_t in = op.x.size(1);
  const int64_t out = op.dy.size(1);
  dispatch_float(op.x.dtype(), "linear_backward", [&](auto zero) {
    using T = decltype(zero);
    const T* dy = op.dy.data<T>();
    if (op.dx.is_present()) {
      row_product<T>({.rows = tokens, .n = in, .k = out, .a = dy, .lda = op.dy.stride(0), .w = op.weight.data<T>(),
                      .ldw = op.weight.stride(0), .right = RightFactor::Plain, .c = op.dx.data<T>(), .ldc = op.dx.stride(0),
                      .accumulate = op.accumulate_dx, .panel = scratch.panel.data<T>()});
    }
    if (op.dweight.is_present()) {
      gradient_product<T>({.rows = tokens, .out = out, .in = in, .dy = dy, .ldy = op.dy.stride(0), .x = op.x.data<T>(),
                           .ldx = op.x.stride(0), .dweight = op.dweight.data<double>(), .scratch = scratch.wide});
    }
  });
}

}  // namespace longhaul::cpu
