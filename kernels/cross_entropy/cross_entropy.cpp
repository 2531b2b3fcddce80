// See cross_entropy.h: checks arguments, takes the scratch for one chunk's logits, and picks the backend.
#include "kernels/cross_entropy/cross_entropy.h"

#include <algorithm>

#include "kernels/cross_entropy/cross_entropy_cpu.h"
#include "kernels/cross_entropy/cross_entropy_cuda.h"
#include "kernels/expect.h"
#include "kernels/products/gradient_product.h"
#include "kernels/products/row_product.h"

namespace longhaul {

void linear_cross_entropy(ExecContext& ctx, const LinearCrossEntropy& op) {
  constexpr std::string_view kOp = "linear_cross_entropy";
  expect_rank(kOp, "x", op.x, 2, "[tokens, hidden]");
  expect_rank(kOp, "weight", op.weight, 2, "[vocab, hidden]");
  expect_float(kOp, "x", op.x);
  expect_contiguous(kOp, "x", op.x);
  const int64_t tokens = op.x.size(0);
  const int64_t hidden = op.x.size(1);
  const int64_t vocab = op.weight.size(0);
  const DType compute = op.x.dtype();
  expect(kOp, "weight", op.weight, compute, {vocab, hidden});
  expect(kOp, "targets", op.targets, DType::I32, {tokens});
  expect(kOp, "loss_sum", op.loss_sum, DType::F64, {1});
  if (op.dx.is_present()) {
    expect(kOp, "dx", op.dx, compute, {tokens, hidden});
  }
  if (op.dweight.is_present()) {
    expect_gradient(kOp, "dweight", op.dweight, compute, {vocab, hidden});
  }
  if (op.chunk_tokens < 1) {
    throw UsageError("{}: chunk_tokens must be positive, got {}", kOp, op.chunk_tokens);
  }
  const ArenaScope scope(ctx.scratch());
  const int64_t chunk = std::min(op.chunk_tokens, tokens);
  cpu::CrossEntropyScratch scratch;
  cuda::CrossEntropyScratch on_gpu;
  scratch.logits = take(ctx.scratch(), "cross_entropy.logits", accurate_type(compute), {chunk, vocab});
  if (ctx.device().kind == DeviceKind::Cuda) {
    on_gpu = {.logits = scratch.logits,
              .dlogits = compute == accurate_type(compute) ? scratch.logits : take(ctx.scratch(), "cross_entropy.dlogits", compute, {chunk, vocab}),
              .token_losses = take(ctx.scratch(), "cross_entropy.token_losses", DType::F64, {tokens})};
  }
  if (ctx.device().kind == DeviceKind::Cpu) {
    scratch.panel = take(ctx.scratch(), "cross_entropy.panel", compute, {std::max(hidden, vocab), cpu::kPanelColumns});
    if (op.dweight.is_present()) {
      expect_dtype(kOp, "dweight", op.dweight, DType::F64);
      scratch.wide = cpu::take_gradient_scratch(ctx.scratch(), compute, chunk, vocab, hidden);
    }
  }
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::linear_cross_entropy(op, scratch); return;
    case DeviceKind::Cuda: cuda::linear_cross_entropy(ctx, op, on_gpu); return;
  }
}

}  // namespace longhaul
