// See grouped_linear.h. Checks the arguments and picks the backend.
#include "kernels/grouped_linear/grouped_linear.h"

#include "kernels/grouped_linear/grouped_linear_cpu.h"

namespace longhaul {
namespace {

void expect_rows(std::string_view op, std::string_view argument, const TensorView& view, DType dtype, const Shape& wanted) {
  expect_shape(op, argument, view, wanted);
  expect_dtype(op, argument, view, dtype);
  if (view.stride(1) != 1 || view.stride(0) < view.size(1)) {
    throw ShapeError("{}: the rows of {} must be contiguous and apart: {} with strides {} and {}", op, argument,
                     view.to_string(), view.stride(0), view.stride(1));
  }
}

void expect_weight(std::string_view op, const TensorView& weight, DType dtype) {
  if (!weight.is_present() || weight.rank() != 3) {
    throw ShapeError("{}: weight must be [experts, out, in], got {}", op, weight.to_string());
  }
  expect_dtype(op, "weight", weight, dtype);
  expect_contiguous(op, "weight", weight);
}

int64_t rows_of(std::string_view op, const TensorView& x) {
  if (!x.is_present() || x.rank() != 2) {
    throw ShapeError("{}: x must be [rows, in], got {}", op, x.to_string());
  }
  return x.size(0);
}

void expect_cpu(std::string_view op, const ExecContext& ctx) {
  if (ctx.device().kind != DeviceKind::Cpu) {
    throw DeviceError("{}: there is no CUDA version in this program; use the CPU backend", op);
  }
}

}  // namespace

void grouped_linear_forward(ExecContext& ctx, const GroupedLinearForward& op) {
  constexpr std::string_view kName = "grouped_linear_forward";
  const DType dtype = op.x.dtype();
  const int64_t rows = rows_of(kName, op.x);
  expect_weight(kName, op.weight, dtype);
  expect_rows(kName, "x", op.x, dtype, {rows, op.weight.size(2)});
  expect_rows(kName, "y", op.y, dtype, {rows, op.weight.size(1)});
  expect(kName, "offsets", op.offsets, DType::I64, {op.weight.size(0) + 1});
  if (ctx.is_planning()) {
    return;
  }
  expect_cpu(kName, ctx);
  cpu::grouped_linear_forward(op);
}

void grouped_linear_backward(ExecContext& ctx, const GroupedLinearBackward& op) {
  constexpr std::string_view kName = "grouped_linear_backward";
  const DType dtype = op.x.dtype();
  const int64_t rows = rows_of(kName, op.x);
  expect_weight(kName, op.weight, dtype);
  expect_rows(kName, "x", op.x, dtype, {rows, op.weight.size(2)});
  expect_rows(kName, "dy", op.dy, dtype, {rows, op.weight.size(1)});
  expect(kName, "offsets", op.offsets, DType::I64, {op.weight.size(0) + 1});
  if (op.dx.is_present()) {
    expect_rows(kName, "dx", op.dx, dtype, {rows, op.weight.size(2)});
  }
  if (op.dweight.is_present()) {
    expect(kName, "dweight", op.dweight, accurate_type(dtype), op.weight.shape());
  }
  if (ctx.is_planning()) {
    return;
  }
  expect_cpu(kName, ctx);
  cpu::grouped_linear_backward(op);
}

}  // namespace longhaul
