// See grouped_linear.h. Checks the arguments and picks the backend.
#include "kernels/grouped_linear/grouped_linear.h"

#include "kernels/expect.h"
#include "kernels/grouped_linear/grouped_linear_cpu.h"
#include "kernels/grouped_linear/grouped_linear_cuda.h"
#include "kernels/products/gradient_product.h"
#include "kernels/products/row_product.h"

namespace longhaul {
namespace {

// Checks x [rows, in] and weight [experts, out, in]; returns the rows.
int64_t expect_operands(std::string_view op, const TensorView& x, const TensorView& weight, const TensorView& offsets) {
  expect_rank(op, "x", x, 2, "[rows, in]");
  expect_float(op, "x", x);
  expect_rank(op, "weight", weight, 3, "[experts, out, in]");
  expect(op, "weight", weight, x.dtype(), weight.shape());
  expect_rows(op, "x", x, x.dtype(), {x.size(0), weight.size(2)});
  expect(op, "offsets", offsets, DType::I64, {weight.size(0) + 1});
  return x.size(0);
}

}  // namespace

void grouped_linear_forward(ExecContext& ctx, const GroupedLinearForward& op) {
  constexpr std::string_view kName = "grouped_linear_forward";
  const DType dtype = op.x.dtype();
  const int64_t rows = expect_operands(kName, op.x, op.weight, op.offsets);
  expect_rows(kName, "y", op.y, dtype, {rows, op.weight.size(1)});
  const ArenaScope scope(ctx.scratch());
  cpu::LinearScratch scratch;
  if (ctx.device().kind == DeviceKind::Cpu) {
    scratch.panel = take(ctx.scratch(), "grouped_linear.panel", dtype, {op.weight.size(2), cpu::kPanelColumns});
  }
  if (ctx.is_planning()) {
    return;
  }
  if (ctx.device().kind == DeviceKind::Cuda) {
    cuda::grouped_linear_forward(ctx, op);
    return;
  }
  cpu::grouped_linear_forward(op, scratch);
}

void grouped_linear_backward(ExecContext& ctx, const GroupedLinearBackward& op) {
  constexpr std::string_view kName = "grouped_linear_backward";
  const DType dtype = op.x.dtype();
  const int64_t rows = expect_operands(kName, op.x, op.weight, op.offsets);
  expect_rows(kName, "dy", op.dy, dtype, {rows, op.weight.size(1)});
  if (op.dx.is_present()) {
    expect_rows(kName, "dx", op.dx, dtype, {rows, op.weight.size(2)});
  }
  if (op.dweight.is_present()) {
    expect_gradient(kName, "dweight", op.dweight, dtype, op.weight.shape());
  }
  const ArenaScope scope(ctx.scratch());
  cpu::LinearScratch scratch;
  if (ctx.device().kind == DeviceKind::Cpu) {
    scratch.panel = take(ctx.scratch(), "grouped_linear.panel", dtype, {op.weight.size(1), cpu::kPanelColumns});
    if (op.dweight.is_present()) {
      expect_dtype(kName, "dweight", op.dweight, DType::F64);
      scratch.wide = cpu::take_gradient_scratch(ctx.scratch(), dtype, rows, op.weight.size(1), op.weight.size(2));
    }
  }
  if (ctx.is_planning()) {
    return;
  }
  if (ctx.device().kind == DeviceKind::Cuda) {
    cuda::grouped_linear_backward(ctx, op);
    return;
  }
  cpu::grouped_linear_backward(op, scratch);
}

}  // namespace longhaul
