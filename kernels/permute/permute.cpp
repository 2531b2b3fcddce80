// See permute.h. Checks the arguments, takes scratch and picks the backend.
#include "kernels/permute/permute.h"

#include "kernels/expect.h"
#include "kernels/gpu/counting_sort.h"
#include "kernels/permute/permute_cpu.h"
#include "kernels/permute/permute_cuda.h"

namespace longhaul {
namespace {

void expect_slots(std::string_view op, const TensorView& row_of_slot, int64_t tokens, int64_t top_k) {
  if (top_k < 1) {
    throw ShapeError("{}: top_k must be at least 1, got {}", op, top_k);
  }
  expect(op, "row_of_slot", row_of_slot, DType::I64, {tokens * top_k});
}

}  // namespace

void plan_permutation(ExecContext& ctx, const PlanPermutation& op) {
  constexpr std::string_view kName = "plan_permutation";
  if (!op.experts.is_present() || op.num_experts < 1) {
    throw ShapeError("{}: experts must be present and num_experts positive, got {} and {}", kName, op.experts.to_string(),
                     op.num_experts);
  }
  expect(kName, "experts", op.experts, DType::I32, op.experts.shape());
  expect(kName, "row_of_slot", op.row_of_slot, DType::I64, {op.experts.numel()});
  expect(kName, "offsets", op.offsets, DType::I64, {op.num_experts + 1});
  const ArenaScope scope(ctx.scratch());
  if (ctx.device().kind == DeviceKind::Cuda) {
    if (op.num_experts > cuda::kMaxBuckets) {
      throw ShapeError("{}: num_experts must be at most {} on a GPU, got {}", kName, cuda::kMaxBuckets, op.num_experts);
    }
    const TensorView counts = cuda::take_sort_counts(ctx.scratch(), op.experts.numel(), op.num_experts);
    if (!ctx.is_planning()) {
      cuda::plan_permutation(ctx, op, counts);
    }
    return;
  }
  const TensorView next_row = take(ctx.scratch(), "permute.next_row", DType::I64, {op.num_experts});
  if (!ctx.is_planning()) {
    cpu::plan_permutation(op, next_row);
  }
}

void permute_forward(ExecContext& ctx, const PermuteForward& op) {
  constexpr std::string_view kName = "permute_forward";
  expect_rank(kName, "x", op.x, 2, "[tokens, dim]");
  const int64_t tokens = op.x.size(0);
  expect_contiguous(kName, "x", op.x);
  expect_slots(kName, op.row_of_slot, tokens, op.top_k);
  expect(kName, "y", op.y, op.x.dtype(), {tokens * op.top_k, op.x.size(1)});
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::permute_forward(op); return;
    case DeviceKind::Cuda: cuda::permute_forward(ctx, op); return;
  }
}

void permute_backward(ExecContext& ctx, const PermuteBackward& op) {
  constexpr std::string_view kName = "permute_backward";
  expect_rank(kName, "dx", op.dx, 2, "[tokens, dim]");
  const int64_t tokens = op.dx.size(0);
  expect_float(kName, "dy", op.dy);
  expect(kName, "dx", op.dx, op.dy.dtype(), op.dx.shape());
  expect_slots(kName, op.row_of_slot, tokens, op.top_k);
  expect(kName, "dy", op.dy, op.dy.dtype(), {tokens * op.top_k, op.dx.size(1)});
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::permute_backward(op); return;
    case DeviceKind::Cuda: cuda::permute_backward(ctx, op); return;
  }
}

void combine_forward(ExecContext& ctx, const CombineForward& op) {
  constexpr std::string_view kName = "combine_forward";
  expect_rank(kName, "weights", op.weights, 2, "[tokens, top_k]");
  expect_float(kName, "x", op.x);
  expect_rank(kName, "x", op.x, 2, "[tokens * top_k, dim]");
  const int64_t tokens = op.weights.size(0);
  const int64_t top_k = op.weights.size(1);
  const int64_t dim = op.x.size(1);
  expect_slots(kName, op.row_of_slot, tokens, top_k);
  expect(kName, "x", op.x, op.x.dtype(), {tokens * top_k, dim});
  expect(kName, "weights", op.weights, accurate_type(op.x.dtype()), {tokens, top_k});
  expect(kName, "y", op.y, op.x.dtype(), {tokens, dim});
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::combine_forward(op); return;
    case DeviceKind::Cuda: cuda::combine_forward(ctx, op); return;
  }
}

void combine_backward(ExecContext& ctx, const CombineBackward& op) {
  constexpr std::string_view kName = "combine_backward";
  expect_rank(kName, "weights", op.weights, 2, "[tokens, top_k]");
  expect_float(kName, "x", op.x);
  expect_rank(kName, "x", op.x, 2, "[tokens * top_k, dim]");
  const DType dtype = op.x.dtype();
  const int64_t tokens = op.weights.size(0);
  const int64_t top_k = op.weights.size(1);
  const int64_t dim = op.x.size(1);
  expect_slots(kName, op.row_of_slot, tokens, top_k);
  expect(kName, "x", op.x, dtype, {tokens * top_k, dim});
  expect(kName, "dy", op.dy, dtype, {tokens, dim});
  expect(kName, "weights", op.weights, accurate_type(dtype), {tokens, top_k});
  expect(kName, "dx", op.dx, dtype, {tokens * top_k, dim});
  expect(kName, "dweights", op.dweights, accurate_type(dtype), {tokens, top_k});
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::combine_backward(op); return;
    case DeviceKind::Cuda: cuda::combine_backward(ctx, op); return;
  }
}

}  // namespace longhaul
