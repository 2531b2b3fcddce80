// See linear.h: checks arguments and picks the backend.
#include "kernels/linear/linear.h"

#include "kernels/expect.h"
#include "kernels/linear/linear_cpu.h"
#include "kernels/linear/linear_cuda.h"
#include "kernels/products/gradient_product.h"
#include "kernels/products/row_product.h"

namespace longhaul {

void linear_forward(ExecContext& ctx, const LinearForward& op) {
  constexpr std::string_view kOp = "linear_forward";
  expect_rank(kOp, "x", op.x, 2, "[tokens, in]");
  expect_rank(kOp, "weight", op.weight, 2, "[out, in]");
  const int64_t tokens = op.x.size(0);
  const int64_t in = op.x.size(1);
  const int64_t out = op.weight.size(0);
  const DType compute = op.x.dtype();
  expect_float(kOp, "x", op.x);
  expect_unit_stride(kOp, "x", op.x);
  expect(kOp, "weight", op.weight, compute, {out, in});
  expect_compute_or_accurate(kOp, "y", op.y, compute);
  expect_rows(kOp, "y", op.y, op.y.dtype(), {tokens, out});
  const ArenaScope scope(ctx.scratch());
  cpu::LinearScratch scratch;
  if (ctx.device().kind == DeviceKind::Cpu) {
    scratch.panel = take(ctx.scratch(), "linear.panel", compute, {in, cpu::kPanelColumns});
  }
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::linear_forward(op, scratch); return;
    case DeviceKind::Cuda: cuda::linear_forward(ctx, op); return;
  }
}

void linear_backward(ExecContext& ctx, const LinearBackward& op) {
  constexpr std::string_view kOp = "linear_backward";
  expect_rank(kOp, "dy", op.dy, 2, "[tokens, out]");
  expect_rank(kOp, "x", op.x, 2, "[tokens, in]");
  const int64_t tokens = op.x.size(0);
  const int64_t in = op.x.size(1);
  const int64_t out = op.dy.size(1);
  const DType compute = op.x.dtype();
  expect_float(kOp, "x", op.x);
  expect_unit_stride(kOp, "x", op.x);
  expect_compute_or_accurate(kOp, "dy", op.dy, compute);
  expect_rows(kOp, "dy", op.dy, op.dy.dtype(), {tokens, out});
  expect(kOp, "weight", op.weight, compute, {out, in});
  if (op.dx.is_present()) {
    expect_rows(kOp, "dx", op.dx, compute, {tokens, in});
  }
  if (op.dweight.is_present()) {
    expect_gradient(kOp, "dweight", op.dweight, compute, {out, in});
  }
  const ArenaScope scope(ctx.scratch());
  cpu::LinearScratch scratch;
  if (ctx.device().kind == DeviceKind::Cpu) {
    scratch.panel = take(ctx.scratch(), "linear.panel", compute, {out, cpu::kPanelColumns});
    if (op.dweight.is_present()) {
      expect_dtype(kOp, "dweight", op.dweight, DType::F64);
      scratch.wide = cpu::take_gradient_scratch(ctx.scratch(), compute, tokens, out, in);
    }
  }
  TensorView rounded_dy;
  if (op.dy.dtype() != compute) {
    rounded_dy = take(ctx.scratch(), "linear.rounded_dy", compute, {tokens, out});
  }
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::linear_backward(op, scratch); return;
    case DeviceKind::Cuda: cuda::linear_backward(ctx, op, rounded_dy); return;
  }
}

}  // namespace longhaul
