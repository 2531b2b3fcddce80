// See router.h. Checks the arguments, takes scratch and picks the backend.
#include "kernels/router/router.h"

#include "kernels/expect.h"
#include "kernels/router/router_cpu.h"
#include "kernels/router/router_cuda.h"

namespace longhaul {
namespace {

// Everything is in the accurate type, so bf16 logits are refused rather than rounded scores compared.
void expect_scores(std::string_view op, std::string_view argument, const TensorView& view) {
  if (!view.is_present() || view.rank() != 2 || view.dtype() != accurate_type(view.dtype())) {
    throw ShapeError("{}: {} must be f32 or f64 [tokens, experts], got {}", op, argument, view.to_string());
  }
  expect_contiguous(op, argument, view);
}

}  // namespace

void router_forward(ExecContext& ctx, const RouterForward& op) {
  constexpr std::string_view kName = "router_forward";
  expect_scores(kName, "logits", op.logits);
  const DType dtype = op.logits.dtype();
  const int64_t tokens = op.logits.size(0);
  const int64_t experts = op.logits.size(1);
  if (op.top_k < 1 || op.top_k > experts) {
    throw ShapeError("{}: top_k must be in [1, {} experts], got {}", kName, experts, op.top_k);
  }
  if (ctx.device().kind == DeviceKind::Cuda && experts > cuda::kMaxRouterExperts) {
    throw ShapeError("{}: logits must have at most {} experts on a GPU, got {}", kName, cuda::kMaxRouterExperts, experts);
  }
  expect(kName, "bias", op.bias, dtype, {experts});
  if (op.forced_experts.is_present()) {
    expect(kName, "forced_experts", op.forced_experts, DType::I32, {tokens, op.top_k});
  }
  expect(kName, "scores", op.scores, dtype, {tokens, experts});
  expect(kName, "experts", op.experts, DType::I32, {tokens, op.top_k});
  expect(kName, "weights", op.weights, dtype, {tokens, op.top_k});
  expect(kName, "cutoff", op.cutoff, dtype, {tokens});
  const ArenaScope scope(ctx.scratch());
  const TensorView best = take(ctx.scratch(), "router.best", dtype, {op.top_k + 1});
  const TensorView best_index = take(ctx.scratch(), "router.best_index", DType::I64, {op.top_k + 1});
  if (ctx.is_planning()) {
    return;
  }
  if (ctx.device().kind == DeviceKind::Cuda) {
    cuda::router_forward(ctx, op);
    return;
  }
  cpu::router_forward(op, best, best_index);
}

void router_backward(ExecContext& ctx, const RouterBackward& op) {
  constexpr std::string_view kName = "router_backward";
  expect_scores(kName, "scores", op.scores);
  const DType dtype = op.scores.dtype();
  const int64_t tokens = op.scores.size(0);
  const int64_t experts = op.scores.size(1);
  expect_rank(kName, "experts", op.experts, 2, "[tokens, top_k]");
  const int64_t top_k = op.experts.size(1);
  expect(kName, "experts", op.experts, DType::I32, {tokens, top_k});
  expect(kName, "weights", op.weights, dtype, {tokens, top_k});
  expect(kName, "dweights", op.dweights, dtype, {tokens, top_k});
  expect(kName, "dlogits", op.dlogits, dtype, {tokens, experts});
  if (ctx.is_planning()) {
    return;
  }
  if (ctx.device().kind == DeviceKind::Cuda) {
    cuda::router_backward(ctx, op);
    return;
  }
  cpu::router_backward(op);
}

}  // namespace longhaul
