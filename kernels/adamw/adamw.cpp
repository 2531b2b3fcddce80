// See adamw.h: checks arguments and picks the backend.
#include "kernels/adamw/adamw.h"

#include "kernels/adamw/adamw_cpu.h"
#include "kernels/adamw/adamw_cuda.h"
#include "kernels/expect.h"

namespace longhaul {

void adamw(ExecContext& ctx, const AdamW& op) {
  constexpr std::string_view kOp = "adamw";
  expect_float(kOp, "parameter", op.parameter);
  expect_contiguous(kOp, "parameter", op.parameter);
  const Shape shape = op.parameter.shape();
  const DType accurate = accurate_type(op.parameter.dtype());
  expect(kOp, "parameter", op.parameter, accurate, shape);
  expect_gradient(kOp, "gradient", op.gradient, accurate, shape);
  expect(kOp, "m", op.m, accurate, shape);
  expect(kOp, "v", op.v, accurate, shape);
  if (op.step < 1) {
    throw UsageError("{}: step counts from 1, got {}", kOp, op.step);
  }
  if (!(op.beta1 >= 0 && op.beta1 < 1 && op.beta2 >= 0 && op.beta2 < 1)) {
    throw UsageError("{}: beta1 and beta2 must be in [0, 1), got {} and {}", kOp, op.beta1, op.beta2);
  }
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::adamw(op); return;
    case DeviceKind::Cuda: cuda::adamw(ctx, op); return;
  }
}

}  // namespace longhaul
