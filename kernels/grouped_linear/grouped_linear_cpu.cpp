// Grouped linear maps on the CPU: one matrix product an expert, in the order of experts. An expert's products see only
// its own rows, so what lies beyond the last offset (left-over capacity, possibly NaN) cannot spread.
#include "kernels/grouped_linear/grouped_linear_cpu.h"

#include "kernels/products/gradient_product.h"
#include "kernels/products/row_product.h"

namespace longhaul::cpu {
namespace {

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
void forward(const GroupedLinearForward& op, const LinearScratch& scratch) {
  const int64_t out = op.weight.size(1);
  const int64_t in = op.weight.size(2);
  for_each_group(op.offsets, op.x.size(0), [&](int64_t expert, int64_t first, int64_t rows) {
    row_product<T>({.rows = rows, .n = out, .k = in, .a = op.x.data<T>() + first * op.x.stride(0), .lda = op.x.stride(0),
                    .w = op.weight.data<T>() + expert * out * in, .ldw = in, .right = RightFactor::Transposed,
                    .c = op.y.data<T>() + first * op.y.stride(0), .ldc = op.y.stride(0), .panel = scratch.panel.data<T>()});
  });
}

template <class T>
void backward(const GroupedLinearBackward& op, const LinearScratch& scratch) {
  const int64_t out = op.weight.size(1);
  const int64_t in = op.weight.size(2);
  for_each_group(op.offsets, op.x.size(0), [&](int64_t expert, int64_t first, int64_t rows) {
    const T* dy = op.dy.data<T>() + first * op.dy.stride(0);
    if (op.dx.is_present()) {
      row_product<T>({.rows = rows, .n = in, .k = out, .a = dy, .lda = op.dy.stride(0), .w = op.weight.data<T>() + expert * out * in,
                      .ldw = in, .right = RightFactor::Plain, .c = op.dx.data<T>() + first * op.dx.stride(0), .ldc = op.dx.stride(0),
                      .accumulate = op.accumulate_dx, .panel = scratch.panel.data<T>()});
    }
    if (op.dweight.is_present()) {
      gradient_product<T>({.rows = rows, .out = out, .in = in, .dy = dy, .ldy = op.dy.stride(0),
                           .x = op.x.data<T>() + first * op.x.stride(0), .ldx = op.x.stride(0),
                           .dweight = op.dweight.data<double>() + expert * out * in, .scratch = scratch.wide});
    }
  });
}

}  // namespace

void grouped_linear_forward(const GroupedLinearForward& op, const LinearScratch& scratch) {
  dispatch_float(op.x.dtype(), "grouped_linear_forward", [&](auto zero) { forward<decltype(zero)>(op, scratch); });
}

void grouped_linear_backward(const GroupedLinearBackward& op, const LinearScratch& scratch) {
  dispatch_float(op.x.dtype(), "grouped_linear_backward", [&](auto zero) { backward<decltype(zero)>(op, scratch); });
}

}  // namespace longhaul::cpu
