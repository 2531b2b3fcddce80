// See gated_output.h: checks arguments and picks the backend.
#include "kernels/gated_output/gated_output.h"

#include "kernels/expect.h"
#include "kernels/gated_output/gated_output_cpu.h"
#include "kernels/gated_output/gated_output_cuda.h"

namespace longhaul {

void gated_output_forward(ExecContext& ctx, const GatedOutputForward& op) {
  constexpr std::string_view kOp = "gated_output_forward";
  expect_rank(kOp, "y", op.y, 2, "[tokens, dim]");
  expect_float(kOp, "y", op.y);
  expect_contiguous(kOp, "y", op.y);
  const DType compute = op.y.dtype();
  expect(kOp, "o", op.o, accurate_type(compute), op.y.shape());
  if (op.gate.is_present()) {
    expect(kOp, "gate", op.gate, compute, op.y.shape());
  }
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::gated_output_forward(op); return;
    case DeviceKind::Cuda: cuda::gated_output_forward(ctx, op); return;
  }
}

void gated_output_backward(ExecContext& ctx, const GatedOutputBackward& op) {
  constexpr std::string_view kOp = "gated_output_backward";
  expect_rank(kOp, "dy", op.dy, 2, "[tokens, dim]");
  expect_float(kOp, "dy", op.dy);
  expect_contiguous(kOp, "dy", op.dy);
  const DType compute = op.dy.dtype();
  expect(kOp, "o", op.o, accurate_type(compute), op.dy.shape());
  expect(kOp, "d_o", op.d_o, accurate_type(compute), op.dy.shape());
  if (op.gate.is_present()) {
    expect(kOp, "gate", op.gate, compute, op.dy.shape());
    expect(kOp, "dgate", op.dgate, compute, op.dy.shape());
  } else if (op.dgate.is_present()) {
    throw ShapeError("{}: dgate must be absent when gate is, got {}", kOp, op.dgate.to_string());
  }
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::gated_output_backward(op); return;
    case DeviceKind::Cuda: cuda::gated_output_backward(ctx, op); return;
  }
}

}  // namespace longhaul
