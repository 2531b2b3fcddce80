// See embedding.h: checks arguments and picks the backend.
#include "kernels/embedding/embedding.h"

#include "kernels/embedding/embedding_cpu.h"
#include "kernels/embedding/embedding_cuda.h"
#include "kernels/expect.h"
#include "kernels/gpu/counting_sort.h"

namespace longhaul {

void embedding_forward(ExecContext& ctx, const EmbeddingForward& op) {
  constexpr std::string_view kOp = "embedding_forward";
  expect_rank(kOp, "ids", op.ids, 1, "[tokens]");
  expect_rank(kOp, "table", op.table, 2, "[vocab, hidden]");
  expect_float(kOp, "table", op.table);
  expect_dtype(kOp, "ids", op.ids, DType::I32);
  expect_contiguous(kOp, "ids", op.ids);
  expect_contiguous(kOp, "table", op.table);
  expect(kOp, "y", op.y, op.table.dtype(), {op.ids.size(0), op.table.size(1)});
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::embedding_forward(op); return;
    case DeviceKind::Cuda: cuda::embedding_forward(ctx, op); return;
  }
}

void embedding_backward(ExecContext& ctx, const EmbeddingBackward& op) {
  constexpr std::string_view kOp = "embedding_backward";
  expect_rank(kOp, "dy", op.dy, 2, "[tokens, hidden]");
  expect_float(kOp, "dy", op.dy);
  expect_contiguous(kOp, "dy", op.dy);
  expect(kOp, "ids", op.ids, DType::I32, {op.dy.size(0)});
  expect_rank(kOp, "dtable", op.dtable, 2, "[vocab, hidden]");
  expect_gradient(kOp, "dtable", op.dtable, op.dy.dtype(), {op.dtable.size(0), op.dy.size(1)});
  const ArenaScope scope(ctx.scratch());
  cuda::EmbeddingScratch scratch;
  if (ctx.device().kind == DeviceKind::Cuda) {
    const Shape tokens{op.ids.size(0)};
    scratch = {.keys = take(ctx.scratch(), "embedding.keys", DType::I32, tokens),
               .other_keys = take(ctx.scratch(), "embedding.other_keys", DType::I32, tokens),
               .order = take(ctx.scratch(), "embedding.order", DType::I32, tokens),
               .other_order = take(ctx.scratch(), "embedding.other_order", DType::I32, tokens),
               .places = take(ctx.scratch(), "embedding.places", DType::I64, tokens),
               .offsets = take(ctx.scratch(), "embedding.offsets", DType::I64, {cuda::kDigitBuckets + 1}),
               .counts = cuda::take_sort_counts(ctx.scratch(), tokens[0], cuda::kDigitBuckets)};
  }
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::embedding_backward(op); return;
    case DeviceKind::Cuda: cuda::embedding_backward(ctx, op, scratch); return;
  }
}

}  // namespace longhaul
