// See mla_pack.h: checks arguments and picks the backend.
#include "kernels/mla_pack/mla_pack.h"

#include "kernels/expect.h"
#include "kernels/mla_pack/mla_pack_cpu.h"
#include "kernels/mla_pack/mla_pack_cuda.h"

namespace longhaul {

void mla_pack_forward(ExecContext& ctx, const MlaPackForward& op) {
  constexpr std::string_view kOp = "mla_pack_forward";
  expect_rank(kOp, "k_heads", op.k_heads, 3, "[tokens, heads, nope_dim]");
  expect_rank(kOp, "k_shared", op.k_shared, 2, "[tokens, shared_dim]");
  expect_float(kOp, "k_heads", op.k_heads);
  expect_unit_stride(kOp, "k_heads", op.k_heads);
  const int64_t tokens = op.k_heads.size(0);
  const int64_t heads = op.k_heads.size(1);
  const DType compute = op.k_heads.dtype();
  expect_rows(kOp, "k_shared", op.k_shared, compute, {tokens, op.k_shared.size(1)});
  expect(kOp, "k", op.k, compute, {tokens, heads, op.k_heads.size(2) + op.k_shared.size(1)});
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::mla_pack_forward(op); return;
    case DeviceKind::Cuda: cuda::mla_pack_forward(ctx, op); return;
  }
}

void mla_pack_backward(ExecContext& ctx, const MlaPackBackward& op) {
  constexpr std::string_view kOp = "mla_pack_backward";
  expect_rank(kOp, "dk_heads", op.dk_heads, 3, "[tokens, heads, nope_dim]");
  expect_rank(kOp, "dk_shared", op.dk_shared, 2, "[tokens, shared_dim]");
  expect_float(kOp, "dk_heads", op.dk_heads);
  expect_unit_stride(kOp, "dk_heads", op.dk_heads);
  const int64_t tokens = op.dk_heads.size(0);
  const int64_t heads = op.dk_heads.size(1);
  const DType compute = op.dk_heads.dtype();
  expect_rows(kOp, "dk_shared", op.dk_shared, compute, {tokens, op.dk_shared.size(1)});
  expect(kOp, "dk", op.dk, compute, {tokens, heads, op.dk_heads.size(2) + op.dk_shared.size(1)});
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::mla_pack_backward(op); return;
    case DeviceKind::Cuda: cuda::mla_pack_backward(ctx, op); return;
  }
}

}  // namespace longhaul
