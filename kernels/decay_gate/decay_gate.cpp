// See decay_gate.h: checks arguments, takes scratch, and picks the backend.
#include "kernels/decay_gate/decay_gate.h"

#include "kernels/decay_gate/decay_gate_cpu.h"
#include "kernels/decay_gate/decay_gate_cuda.h"
#include "kernels/expect.h"
#include "kernels/gpu/partial_sums.h"

namespace longhaul {
namespace {

void check_inputs(std::string_view op, const TensorView& z, const TensorView& a_log, const TensorView& dt_bias) {
  expect_rank(op, "z", z, 3, "[tokens, heads, head_dim]");
  expect_float(op, "z", z);
  expect_contiguous(op, "z", z);
  const DType accurate = accurate_type(z.dtype());
  expect(op, "a_log", a_log, accurate, {z.size(1)});
  expect(op, "dt_bias", dt_bias, accurate, {z.size(1) * z.size(2)});
}

void check_bound(std::string_view op, DecayKind kind, double lower_bound) {
  if (kind == DecayKind::Bounded && !(lower_bound >= -5 && lower_bound < 0)) {
    throw UsageError("{}: lower_bound must be in [-5, 0), got {}; below -5 the reciprocal decay of a 16-token tile can "
                     "leave bf16's range",
                     op, lower_bound);
  }
}

}  // namespace

void decay_gate_forward(ExecContext& ctx, const DecayGateForward& op) {
  constexpr std::string_view kOp = "decay_gate_forward";
  check_inputs(kOp, op.z, op.a_log, op.dt_bias);
  check_bound(kOp, op.kind, op.lower_bound);
  expect(kOp, "g", op.g, accurate_type(op.z.dtype()), op.z.shape());
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::decay_gate_forward(op); return;
    case DeviceKind::Cuda: cuda::decay_gate_forward(ctx, op); return;
  }
}

void decay_gate_backward(ExecContext& ctx, const DecayGateBackward& op) {
  constexpr std::string_view kOp = "decay_gate_backward";
  check_inputs(kOp, op.z, op.a_log, op.dt_bias);
  check_bound(kOp, op.kind, op.lower_bound);
  const DType accurate = accurate_type(op.z.dtype());
  const int64_t heads = op.z.size(1);
  const int64_t channels = heads * op.z.size(2);
  expect(kOp, "dg", op.dg, accurate, op.z.shape());
  expect(kOp, "dz", op.dz, op.z.dtype(), op.z.shape());
  expect_gradient(kOp, "da_log", op.da_log, op.z.dtype(), {heads});
  expect_gradient(kOp, "ddt_bias", op.ddt_bias, op.z.dtype(), {channels});
  const ArenaScope scope(ctx.scratch());
  cpu::DecayGateScratch scratch;
  cuda::DecayGateScratch partials;
  if (ctx.device().kind == DeviceKind::Cuda) {
    partials.a_log_terms = cuda::take_partials(ctx.scratch(), "decay_gate.a_log", op.z.size(0), channels);
    partials.dt_bias_sums = cuda::take_partials(ctx.scratch(), "decay_gate.dt_bias", op.z.size(0), channels);
  } else {
    scratch.a_log_terms = take(ctx.scratch(), "decay_gate a_log sums", DType::F64, {channels});
    scratch.dt_bias_sums = take(ctx.scratch(), "decay_gate dt_bias sums", DType::F64, {channels});
  }
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::decay_gate_backward(op, scratch); return;
    case DeviceKind::Cuda: cuda::decay_gate_backward(ctx, op, partials); return;
  }
}

}  // namespace longhaul
