// Grouped linear maps on the CPU: one matrix product an expert, in the order of experts. An expert's products see only
// its own rows, so what lies beyond the last offset (left-over capacity, possibly NaN) cannot spread.
#include "kernels/grouped_linear/grouped_linear_cpu.h"

#include "device/blas.h"

namespace longhaul::cpu {
namespace {

using blas::Transpose;

// Calls fn(expert, first row, number of rows) for every expert that has rows.
template <class Fn>
void for_each_group(const TensorView& offsets, int64_t rows, Fn&& fn) {
  const int64_t experts = offsets.size(0) - 1;
  const auto* bounds = offsets.data<int64_t>();
  LH_CHECK(bounds[0] == 0, "offsets must start with 0, got {}", bounds[0]);
  for (int64_t e = 0; e < experts; ++e) {
    LH_CHECK(bounds[e] <= bounds[e + 1] && bounds[e + 1] <= rows,
             "offsets must ascend within the {} rows, got [{}, {}) for expert {}", rows, bounds[e], bounds[e + 1], e);
  }
  for (int64_t e = 0; e < experts; ++e) {
    if (bounds[e] < bounds[e + 1]) {
      fn(e, bounds[e], bounds[e + 1] - bounds[e]);
    }
  }
}

template <class T>
void forward(const GroupedLinearForward& op) {
  const int64_t out = op.weight.size(1);
  const int64_t in = op.weight.size(2);
  const T* x = op.x.data<T>();
  const T* weight = op.weight.data<T>();
  T* y = op.y.data<T>();
  for_each_group(op.offsets, op.x.size(0), [&](int64_t expert, int64_t first, int64_t rows) {
    blas::gemm(Transpose::No, Transpose::Yes, rows, out, in, T{1}, x + first * op.x.stride(0), op.x.stride(0),
               weight + expert * out * in, in, T{0}, y + first * op.y.stride(0), op.y.stride(0));
  });
}

template <class T>
void backward(const GroupedLinearBackward& op) {
  const int64_t out = op.weight.size(1);
  const int64_t in = op.weight.size(2);
  const T* dy = op.dy.data<T>();
  const T* x = op.x.data<T>();
  const T* weight = op.weight.data<T>();
  const T keep = op.accumulate_dx == Accumulate::Add ? T{1} : T{0};
  for_each_group(op.offsets, op.x.size(0), [&](int64_t expert, int64_t first, int64_t rows) {
    const T* dy_rows = dy + first * op.dy.stride(0);
    if (op.dx.is_present()) {
      blas::gemm(Transpose::No, Transpose::No, rows, in, out, T{1}, dy_rows, op.dy.stride(0), weight + expert * out * in,
                 in, keep, op.dx.data<T>() + first * op.dx.stride(0), op.dx.stride(0));
    }
    if (op.dweight.is_present()) {
      blas::gemm(Transpose::Yes, Transpose::No, out, in, rows, T{1}, dy_rows, op.dy.stride(0),
                 x + first * op.x.stride(0), op.x.stride(0), T{1}, op.dweight.data<T>() + expert * out * in, in);
    }
  });
}

}  // namespace

void grouped_linear_forward(const GroupedLinearForward& op) {
  dispatch_float(op.x.dtype(), "grouped_linear_forward", [&](auto zero) { forward<decltype(zero)>(op); });
}

void grouped_linear_backward(const GroupedLinearBackward& op) {
  dispatch_float(op.x.dtype(), "grouped_linear_backward", [&](auto zero) { backward<decltype(zero)>(op); });
}

}  // namespace longhaul::cpu
