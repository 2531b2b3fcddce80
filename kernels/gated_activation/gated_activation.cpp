// See gated_activation.h: checks arguments and picks the backend.
#include "kernels/gated_activation/gated_activation.h"

#include "kernels/expect.h"
#include "kernels/gated_activation/gated_activation_cpu.h"
#include "kernels/gated_activation/gated_activation_cuda.h"

namespace longhaul {
namespace {

void check_activation(std::string_view op, const Activation& activation) {
  if (activation.kind == ActivationKind::SituGlu && !(activation.beta_gate > 0 && activation.beta_up > 0)) {
    throw UsageError("{}: beta_gate and beta_up must be positive, got {} and {}", op, activation.beta_gate, activation.beta_up);
  }
}

}  // namespace

void gated_activation_forward(ExecContext& ctx, const GatedActivationForward& op) {
  constexpr std::string_view kOp = "gated_activation_forward";
  expect_rank(kOp, "gate", op.gate, 2, "[rows, dim]");
  expect_float(kOp, "gate", op.gate);
  expect_unit_stride(kOp, "gate", op.gate);
  const Shape shape = op.gate.shape();
  expect_rows(kOp, "up", op.up, op.gate.dtype(), shape);
  expect(kOp, "y", op.y, op.gate.dtype(), shape);
  check_activation(kOp, op.activation);
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::gated_activation_forward(op); return;
    case DeviceKind::Cuda: cuda::gated_activation_forward(ctx, op); return;
  }
}

void gated_activation_backward(ExecContext& ctx, const GatedActivationBackward& op) {
  constexpr std::string_view kOp = "gated_activation_backward";
  expect_rank(kOp, "gate", op.gate, 2, "[rows, dim]");
  expect_float(kOp, "gate", op.gate);
  expect_unit_stride(kOp, "gate", op.gate);
  const Shape shape = op.gate.shape();
  const DType compute = op.gate.dtype();
  expect(kOp, "dy", op.dy, compute, shape);
  expect_rows(kOp, "up", op.up, compute, shape);
  expect_rows(kOp, "dgate", op.dgate, compute, shape);
  expect_rows(kOp, "dup", op.dup, compute, shape);
  check_activation(kOp, op.activation);
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::gated_activation_backward(op); return;
    case DeviceKind::Cuda: cuda::gated_activation_backward(ctx, op); return;
  }
}

}  // namespace longhaul
