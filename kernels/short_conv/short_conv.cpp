// See short_conv.h: checks arguments, takes scratch, and picks the backend.
#include "kernels/short_conv/short_conv.h"

#include "kernels/expect.h"
#include "kernels/gpu/partial_sums.h"
#include "kernels/short_conv/short_conv_cpu.h"
#include "kernels/short_conv/short_conv_cuda.h"

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

void check_cuda_width(std::string_view op, const TensorView& weight) {
  if (weight.size(1) > cuda::kMaxConvWidth) {
    throw ShapeError("{}: weight must have a width of at most {} on a GPU, got {}", op, cuda::kMaxConvWidth, weight.to_string());
  }
}

}  // namespace

void short_conv_forward(ExecContext& ctx, const ShortConvForward& op) {
  constexpr std::string_view kOp = "short_conv_forward";
  check_inputs(kOp, op.x, op.weight, op.cu_seqlens);
  expect(kOp, "y", op.y, op.x.dtype(), op.x.shape());
  const ArenaScope scope(ctx.scratch());
  TensorView taps;
  if (ctx.device().kind == DeviceKind::Cuda) {
    check_cuda_width(kOp, op.weight);
  } else {
    taps = take(ctx.scratch(), "short_conv taps", {op.weight.dtype(), {op.weight.size(1), op.x.size(1)}});
  }
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::short_conv_forward(op, taps); return;
    case DeviceKind::Cuda: cuda::short_conv_forward(ctx, op); return;
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
  cpu::ShortConvScratch scratch;
  TensorView partials;
  if (ctx.device().kind == DeviceKind::Cuda) {
    check_cuda_width(kOp, op.weight);
    partials = cuda::take_partials(ctx.scratch(), "short_conv.partials", op.x.size(0), op.weight.numel());
  } else {
    scratch.taps = take(ctx.scratch(), "short_conv taps", op.weight.dtype(), by_tap);
    scratch.dtaps = take(ctx.scratch(), "short_conv dweight sums", DType::F64, by_tap);
    scratch.dsum = take(ctx.scratch(), "short_conv row", op.weight.dtype(), {op.x.size(1)});
  }
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::short_conv_backward(op, scratch); return;
    case DeviceKind::Cuda: cuda::short_conv_backward(ctx, op, partials); return;
  }
}

}  // namespace longhaul
