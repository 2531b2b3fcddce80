// See short_conv.h: checks arguments, takes scratch, and picks the backend.
#include "kernels/short_conv/short_conv.h"

#include "kernels/expect.h"
#include "kernels/no_cuda.h"
#include "kernels/short_conv/short_conv_cpu.h"

namespace longhaul {
namespace {

void check_inputs(std::string_view op, const TensorView& x, const TensorView& weight, const TensorView& cu_seqlens) {
  expect_rank(op, "x", x, 2, "[tokens, channels]");
  expect_float(op, "x", x);
  expect_contiguous(op, "x", x);
  expect_rank(op, "weight", weight, 2, "[channels, width]");
  expect(op, "weight", weight, accurate_type(x.dtype()), {x.size(1), weight.size(1)});
  if (weight.size(1) < 1) {
    throw ShapeError("{}: weight must have a width of at least 1, got {}", op, weight.to_string());
  }
  expect_rank(op, "cu_seqlens", cu_seqlens, 1, "[documents + 1]");
  expect(op, "cu_seqlens", cu_seqlens, DType::I64, {cu_seqlens.size(0)});
  if (cu_seqlens.size(0) < 1) {
    throw ShapeError("{}: cu_seqlens must hold at least the bound 0", op);
  }
}

}  // namespace

void short_conv_forward(ExecContext& ctx, const ShortConvForward& op) {
  constexpr std::string_view kOp = "short_conv_forward";
  check_inputs(kOp, op.x, op.weight, op.cu_seqlens);
  expect(kOp, "y", op.y, op.x.dtype(), op.x.shape());
  const ArenaScope scope(ctx.scratch());
  const TensorView taps = take(ctx.scratch(), "short_conv taps", {op.weight.dtype(), {op.weight.size(1), op.x.size(1)}});
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::short_conv_forward(op, taps); return;
    case DeviceKind::Cuda: throw_no_cuda(kOp);
  }
}

void short_conv_backward(ExecContext& ctx, const ShortConvBackward& op) {
  constexpr std::string_view kOp = "short_conv_backward";
  check_inputs(kOp, op.x, op.weight, op.cu_seqlens);
  expect_shape(kOp, "dy", op.dy, op.x.shape());
  expect_compute_or_accurate(kOp, "dy", op.dy, op.x.dtype());
  expect_contiguous(kOp, "dy", op.dy);
  expect(kOp, "dx", op.dx, op.x.dtype(), op.x.shape());
  expect_gradient(kOp, "dweight", op.dweight, op.x.dtype(), op.weight.shape());
  const Shape by_tap{op.weight.size(1), op.x.size(1)};
  const ArenaScope scope(ctx.scratch());
  const cpu::ShortConvScratch scratch{
      .taps = take(ctx.scratch(), "short_conv taps", op.weight.dtype(), by_tap),
      .dtaps = take(ctx.scratch(), "short_conv dweight sums", DType::F64, by_tap),
      .dsum = take(ctx.scratch(), "short_conv row", op.weight.dtype(), {op.x.size(1)}),
  };
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::short_conv_backward(op, scratch); return;
    case DeviceKind::Cuda: throw_no_cuda(kOp);
  }
}

}  // namespace longhaul
