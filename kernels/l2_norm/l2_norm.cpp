// See l2_norm.h: checks arguments and picks the backend.
#include "kernels/l2_norm/l2_norm.h"

#include "kernels/expect.h"
#include "kernels/l2_norm/l2_norm_cpu.h"
#include "kernels/l2_norm/l2_norm_cuda.h"

namespace longhaul {

void l2_norm_forward(ExecContext& ctx, const L2NormForward& op) {
  constexpr std::string_view kOp = "l2_norm_forward";
  expect_rank(kOp, "x", op.x, 3, "[tokens, heads, head_dim]");
  expect_float(kOp, "x", op.x);
  expect_contiguous(kOp, "x", op.x);
  expect(kOp, "y", op.y, op.x.dtype(), op.x.shape());
  expect(kOp, "inv_norm", op.inv_norm, accurate_type(op.x.dtype()), {op.x.size(0), op.x.size(1)});
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::l2_norm_forward(op); return;
    case DeviceKind::Cuda: cuda::l2_norm_forward(ctx, op); return;
  }
}

void l2_norm_backward(ExecContext& ctx, const L2NormBackward& op) {
  constexpr std::string_view kOp = "l2_norm_backward";
  expect_rank(kOp, "y", op.y, 3, "[tokens, heads, head_dim]");
  expect_float(kOp, "y", op.y);
  expect_contiguous(kOp, "y", op.y);
  const DType compute = op.y.dtype();
  expect_shape(kOp, "dy", op.dy, op.y.shape());
  expect_compute_or_accurate(kOp, "dy", op.dy, compute);
  expect_contiguous(kOp, "dy", op.dy);
  expect(kOp, "inv_norm", op.inv_norm, accurate_type(compute), {op.y.size(0), op.y.size(1)});
  expect(kOp, "dx", op.dx, compute, op.y.shape());
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::l2_norm_backward(op); return;
    case DeviceKind::Cuda: cuda::l2_norm_backward(ctx, op); return;
  }
}

}  // namespace longhaul
