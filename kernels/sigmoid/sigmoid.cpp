// See sigmoid.h: checks arguments and picks the backend.
#include "kernels/sigmoid/sigmoid.h"

#include "kernels/expect.h"
#include "kernels/sigmoid/sigmoid_cpu.h"
#include "kernels/sigmoid/sigmoid_cuda.h"

namespace longhaul {

void sigmoid_forward(ExecContext& ctx, const SigmoidForward& op) {
  constexpr std::string_view kOp = "sigmoid_forward";
  expect_float(kOp, "x", op.x);
  expect_contiguous(kOp, "x", op.x);
  expect(kOp, "y", op.y, accurate_type(op.x.dtype()), op.x.shape());
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::sigmoid_forward(op); return;
    case DeviceKind::Cuda: cuda::sigmoid_forward(ctx, op); return;
  }
}

void sigmoid_backward(ExecContext& ctx, const SigmoidBackward& op) {
  constexpr std::string_view kOp = "sigmoid_backward";
  expect_float(kOp, "dx", op.dx);
  expect_contiguous(kOp, "dx", op.dx);
  const DType accurate = accurate_type(op.dx.dtype());
  expect(kOp, "dy", op.dy, accurate, op.dx.shape());
  expect(kOp, "y", op.y, accurate, op.dx.shape());
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::sigmoid_backward(op); return;
    case DeviceKind::Cuda: cuda::sigmoid_backward(ctx, op); return;
  }
}

}  // namespace longhaul
