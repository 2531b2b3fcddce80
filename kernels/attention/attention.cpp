// Validation of arguments and choice of backend for causal attention; see attention.h.
#include "kernels/attention/attention.h"

#include <algorithm>

#include "kernels/attention/attention_cpu.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/expect.h"

namespace longhaul {
namespace {

// Scratch of the CUDA version. `d_o` is absent forward.
cuda::AttentionScratch take_scratch(std::string_view name, Arena& scratch, const attention::Dims& dims, DType compute,
                                    const TensorView& d_o) {
  if (std::max(dims.key_dim, dims.value_dim) > cuda::kMaxAttentionDim) {
    throw ShapeError("{}: on a GPU key_dim and value_dim are at most {}, got {} and {}; run it with the cpu backend", name,
                     cuda::kMaxAttentionDim, dims.key_dim, dims.value_dim);
  }
  cuda::AttentionScratch result{.tile_starts = take(scratch, "attention.tile_starts", DType::I64, {dims.documents + 1})};
  if (d_o.is_present()) {
    result.delta = take(scratch, "attention.delta", DType::F32, {dims.tokens, dims.heads});
    if (compute == DType::BF16 && d_o.dtype() == DType::F32) {
      result.rounded_d_o = take(scratch, "attention.rounded_d_o", DType::BF16, d_o.shape());
    }
  }
  return result;
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
  if (ctx.device().kind == DeviceKind::Cuda) {
    const ArenaScope scope(ctx.scratch());
    const cuda::AttentionScratch scratch = take_scratch("attention_forward", ctx.scratch(), dims, op.q.dtype(), {});
    if (!ctx.is_planning()) {
      cuda::attention_forward(ctx, op, scratch);
    }
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
  if (ctx.device().kind == DeviceKind::Cuda) {
    const ArenaScope scope(ctx.scratch());
    const cuda::AttentionScratch scratch = take_scratch("attention_backward", ctx.scratch(), dims, compute, op.d_o);
    if (!ctx.is_planning()) {
      cuda::attention_backward(ctx, op, scratch);
    }
    return;
  }
  dispatch_float(compute, "attention_backward",
                 [&](auto zero) { attention::backward_cpu<decltype(zero)>(ctx, op, dims); });
}

}  // namespace longhaul
