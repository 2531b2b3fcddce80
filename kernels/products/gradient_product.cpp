// See gradient_product.h.
#include "kernels/products/gradient_product.h"

#include <algorithm>
#include <type_traits>

#include "base/profile.h"
#include "device/blas.h"

namespace longhaul::cpu {
namespace {

void widen(const float* from, int64_t stride, int64_t rows, int64_t columns, double* to) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      to[r * columns + c] = static_cast<double>(from[r * stride + c]);
    }
  }
}

}  // namespace

TensorView take_gradient_scratch(Arena& arena, DType compute, int64_t rows, int64_t out, int64_t in) {
  return compute == DType::F64 ? TensorView{} : take(arena, "gradient_product.wide", DType::F64, {std::min(rows, kGradientRows), out + in});
}

template <class T>
void gradient_product(const GradientProduct<T>& op) {
  using blas::Transpose;
  const ProfileScope profile("weight gradients");
  for (int64_t first = 0; first < op.rows; first += kGradientRows) {
    const int64_t rows = std::min(kGradientRows, op.rows - first);
    if constexpr (std::is_same_v<T, double>) {
      blas::gemm(Transpose::Yes, Transpose::No, op.out, op.in, rows, 1.0, op.dy + first * op.ldy, op.ldy, op.x + first * op.ldx, op.ldx, 1.0,
                 op.dweight, op.in);
    } else {
      auto* dy = op.scratch.template data<double>();
      double* x = dy + rows * op.out;
      widen(op.dy + first * op.ldy, op.ldy, rows, op.out, dy);
      widen(op.x + first * op.ldx, op.ldx, rows, op.in, x);
      blas::gemm(Transpose::Yes, Transpose::No, op.out, op.in, rows, 1.0, dy, op.out, x, op.in, 1.0, op.dweight, op.in);
    }
  }
}

template void gradient_product<float>(const GradientProduct<float>&);
template void gradient_product<double>(const GradientProduct<double>&);

}  // namespace longhaul::cpu
