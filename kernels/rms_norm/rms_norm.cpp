// See rms_norm.h: checks arguments and picks the backend.
#include "kernels/rms_norm/rms_norm.h"

#include "kernels/expect.h"
#include "kernels/gpu/partial_sums.h"
#include "kernels/rms_norm/rms_norm_cpu.h"
#include "kernels/rms_norm/rms_norm_cuda.h"

namespace longhaul {

void rms_norm_forward(ExecContext& ctx, const RmsNormForward& op) {
  constexpr std::string_view kOp = "rms_norm_forward";
  expect_rank(kOp, "x", op.x, 2, "[rows, dim]");
  expect_float(kOp, "x", op.x);
  expect_unit_stride(kOp, "x", op.x);
  const int64_t rows = op.x.size(0);
  const int64_t dim = op.x.size(1);
  const DType compute = op.x.dtype();
  expect(kOp, "scale", op.scale, compute, {dim});
  expect(kOp, "y", op.y, compute, {rows, dim});
  expect(kOp, "inv_rms", op.inv_rms, accurate_type(compute), {rows});
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::rms_norm_forward(op); return;
    case DeviceKind::Cuda: cuda::rms_norm_forward(ctx, op); return;
  }
}

void rms_norm_backward(ExecContext& ctx, const RmsNormBackward& op) {
  constexpr std::string_view kOp = "rms_norm_backward";
  expect_rank(kOp, "x", op.x, 2, "[rows, dim]");
  expect_float(kOp, "x", op.x);
  expect_unit_stride(kOp, "x", op.x);
  const int64_t rows = op.x.size(0);
  const int64_t dim = op.x.size(1);
  const DType compute = op.x.dtype();
  const DType accurate = accurate_type(compute);
  expect(kOp, "dy", op.dy, compute, {rows, dim});
  expect(kOp, "scale", op.scale, compute, {dim});
  expect(kOp, "inv_rms", op.inv_rms, accurate, {rows});
  expect_rows(kOp, "dx", op.dx, compute, {rows, dim});
  expect_gradient(kOp, "dscale", op.dscale, compute, {dim});
  const ArenaScope scope(ctx.scratch());
  const TensorView scratch = ctx.device().kind == DeviceKind::Cuda ? cuda::take_partials(ctx.scratch(), "rms_norm.partials", rows, dim)
                                                                  : take(ctx.scratch(), "rms_norm dscale sums", DType::F64, {dim});
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::rms_norm_backward(op, scratch); return;
    case DeviceKind::Cuda: cuda::rms_norm_backward(ctx, op, scratch); return;
  }
}

}  // namespace longhaul
