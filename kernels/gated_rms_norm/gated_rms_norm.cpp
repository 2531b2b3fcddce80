// See gated_rms_norm.h: checks arguments, takes scratch, and picks the backend.
#include "kernels/gated_rms_norm/gated_rms_norm.h"

#include "kernels/expect.h"
#include "kernels/gated_rms_norm/gated_rms_norm_cpu.h"
#include "kernels/gated_rms_norm/gated_rms_norm_cuda.h"
#include "kernels/gpu/partial_sums.h"

namespace longhaul {

void gated_rms_norm_forward(ExecContext& ctx, const GatedRmsNormForward& op) {
  constexpr std::string_view kOp = "gated_rms_norm_forward";
  expect_rank(kOp, "o", op.o, 3, "[tokens, heads, head_dim]");
  expect_float(kOp, "o", op.o);
  expect_contiguous(kOp, "o", op.o);
  const int64_t tokens = op.o.size(0);
  const int64_t heads = op.o.size(1);
  const int64_t dim = op.o.size(2);
  const DType compute = op.o.dtype();
  const DType accurate = accurate_type(compute);
  expect(kOp, "scale", op.scale, accurate, {dim});
  expect(kOp, "gate", op.gate, compute, {tokens, heads * dim});
  expect(kOp, "y", op.y, compute, {tokens, heads * dim});
  expect(kOp, "inv_rms", op.inv_rms, accurate, {tokens, heads});
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::gated_rms_norm_forward(op); return;
    case DeviceKind::Cuda: cuda::gated_rms_norm_forward(ctx, op); return;
  }
}

void gated_rms_norm_backward(ExecContext& ctx, const GatedRmsNormBackward& op) {
  constexpr std::string_view kOp = "gated_rms_norm_backward";
  expect_rank(kOp, "o", op.o, 3, "[tokens, heads, head_dim]");
  expect_float(kOp, "o", op.o);
  expect_contiguous(kOp, "o", op.o);
  const int64_t tokens = op.o.size(0);
  const int64_t heads = op.o.size(1);
  const int64_t dim = op.o.size(2);
  const DType compute = op.o.dtype();
  const DType accurate = accurate_type(compute);
  expect(kOp, "dy", op.dy, compute, {tokens, heads * dim});
  expect(kOp, "scale", op.scale, accurate, {dim});
  expect(kOp, "gate", op.gate, compute, {tokens, heads * dim});
  expect(kOp, "inv_rms", op.inv_rms, accurate, {tokens, heads});
  expect(kOp, "d_o", op.d_o, compute, {tokens, heads, dim});
  expect(kOp, "dgate", op.dgate, compute, {tokens, heads * dim});
  expect_gradient(kOp, "dscale", op.dscale, compute, {dim});
  const ArenaScope scope(ctx.scratch());
  cpu::GatedRmsNormScratch scratch;
  TensorView partials;
  if (ctx.device().kind == DeviceKind::Cuda) {
    partials = cuda::take_partials(ctx.scratch(), "gated_rms_norm.partials", tokens * heads, dim);
  } else {
    scratch.dscale_sums = take(ctx.scratch(), "gated_rms_norm dscale sums", DType::F64, {dim});
    scratch.dnormalised = take(ctx.scratch(), "gated_rms_norm row", accurate, {dim});
  }
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::gated_rms_norm_backward(op, scratch); return;
    case DeviceKind::Cuda: cuda::gated_rms_norm_backward(ctx, op, partials); return;
  }
}

}  // namespace longhaul
