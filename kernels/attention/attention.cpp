// Validation of arguments and choice of backend for causal attention; see attention.h.
#include "kernels/attention/attention.h"

#include "kernels/attention/attention_cpu.h"
#include "kernels/expect.h"
#include "kernels/no_cuda.h"

namespace longhaul {
namespace {

// True when a GPU is planned for: the arguments are valid and there is nothing else to plan without a CUDA version.
bool is_plan_for_cuda(const ExecContext& ctx, std::string_view op) {
  if (ctx.device().kind == DeviceKind::Cpu) {
    return false;
  }
  if (!ctx.is_planning()) {
    throw_no_cuda(op);
  }
  return true;
}

template <class Op>
attention::Dims validate_inputs(std::string_view name, const Op& op) {
  expect_rank(name, "q", op.q, 3, "[tokens, heads, key_dim]");
  expect_rank(name, "v", op.v, 3, "[tokens, heads, value_dim]");
  expect_rank(name, "cu_seqlens", op.cu_seqlens, 1, "[documents + 1]");
  if (op.cu_seqlens.size(0) < 1) {
    throw ShapeError("{}: cu_seqlens must be [documents + 1], got {}", name, op.cu_seqlens.to_string());
  }
  const attention::Dims dims{.tokens = op.q.size(0),
                             .heads = op.q.size(1),
                             .key_dim = op.q.size(2),
                             .value_dim = op.v.size(2),
                             .documents = op.cu_seqlens.size(0) - 1};
  const DType compute = op.q.dtype();
  const DType accurate = accurate_type(compute);
  const Shape values{dims.tokens, dims.heads, dims.value_dim};
  expect_rows(name, "q", op.q, compute, {dims.tokens, dims.heads, dims.key_dim});
  expect_rows(name, "k", op.k, compute, {dims.tokens, dims.heads, dims.key_dim});
  expect_rows(name, "v", op.v, compute, values);
  expect(name, "cu_seqlens", op.cu_seqlens, DType::I64, {dims.documents + 1});
  expect(name, "o", op.o, accurate, values);
  expect(name, "lse", op.lse, accurate, {dims.tokens, dims.heads});
  return dims;
}

}  // namespace

void attention_forward(ExecContext& ctx, const AttentionForward& op) {
  const attention::Dims dims = validate_inputs("attention_forward", op);
  if (is_plan_for_cuda(ctx, "attention_forward")) {
    return;
  }
  dispatch_float(op.q.dtype(), "attention_forward",
                 [&](auto zero) { attention::forward_cpu<decltype(zero)>(ctx, op, dims); });
}

void attention_backward(ExecContext& ctx, const AttentionBackward& op) {
  const attention::Dims dims = validate_inputs("attention_backward", op);
  const DType compute = op.q.dtype();
  const Shape keys{dims.tokens, dims.heads, dims.key_dim};
  const Shape values{dims.tokens, dims.heads, dims.value_dim};
  expect_shape("attention_backward", "d_o", op.d_o, values);
  expect_compute_or_accurate("attention_backward", "d_o", op.d_o, compute);
  expect_contiguous("attention_backward", "d_o", op.d_o);
  expect_rows("attention_backward", "dq", op.dq, compute, keys);
  expect_rows("attention_backward", "dk", op.dk, compute, keys);
  expect_rows("attention_backward", "dv", op.dv, compute, values);
  if (is_plan_for_cuda(ctx, "attention_backward")) {
    return;
  }
  dispatch_float(compute, "attention_backward",
                 [&](auto zero) { attention::backward_cpu<decltype(zero)>(ctx, op, dims); });
}

}  // namespace longhaul
