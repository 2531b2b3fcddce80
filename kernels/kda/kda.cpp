// Validation of arguments and choice of backend for Kimi Delta Attention; see kda.h.
#include "kernels/kda/kda.h"

#include <initializer_list>
#include <utility>

#include "kernels/expect.h"
#include "kernels/kda/kda_cpu.h"
#include "kernels/kda/kda_cuda.h"
#include "kernels/kda/kda_hopper.h"
#include "kernels/no_cuda.h"

namespace longhaul {
namespace {

// Checks what forward and backward share and returns the sizes.
template <class Op>
kda::Dims validate_inputs(std::string_view name, const Op& op) {
  expect_rank(name, "q", op.q, 3, "[tokens, heads, key_dim]");
  expect_rank(name, "v", op.v, 3, "[tokens, heads, value_dim]");
  expect_rank(name, "cu_seqlens", op.cu_seqlens, 1, "[documents + 1]");
  if (op.cu_seqlens.size(0) < 1) {
    throw ShapeError("{}: cu_seqlens must be [documents + 1], got {}", name, op.cu_seqlens.to_string());
  }
  const kda::Dims dims{.tokens = op.q.size(0),
                       .heads = op.q.size(1),
                       .key_dim = op.q.size(2),
                       .value_dim = op.v.size(2),
                       .documents = op.cu_seqlens.size(0) - 1};
  const DType compute = op.q.dtype();
  const DType accurate = accurate_type(compute);
  const Shape keys{dims.tokens, dims.heads, dims.key_dim};
  expect(name, "q", op.q, compute, keys);
  expect(name, "k", op.k, compute, keys);
  expect(name, "v", op.v, compute, {dims.tokens, dims.heads, dims.value_dim});
  expect(name, "g", op.g, accurate, keys);
  expect(name, "beta", op.beta, accurate, {dims.tokens, dims.heads});
  expect(name, "cu_seqlens", op.cu_seqlens, DType::I64, {dims.documents + 1});
  return dims;
}

void expect_states(std::string_view name, std::string_view argument, const TensorView& view, DType dtype,
                   const kda::Dims& dims) {
  if (view.is_present()) {
    expect(name, argument, view, dtype, {dims.documents, dims.heads, dims.key_dim, dims.value_dim});
  }
}

kda::Dims validate(std::string_view name, const KdaForward& op) {
  const kda::Dims dims = validate_inputs(name, op);
  const DType accurate = accurate_type(op.q.dtype());
  expect_states(name, "initial_state", op.initial_state, accurate, dims);
  expect_states(name, "final_state", op.final_state, accurate, dims);
  expect(name, "o", op.o, op.q.dtype(), {dims.tokens, dims.heads, dims.value_dim});
  return dims;
}

void validate_chunk_states(std::string_view name, const TensorView& view, DType dtype, const kda::Dims& dims) {
  expect(name, "chunk_states", view, dtype,
         {kda_state_rows(dims.tokens, dims.documents, dims.key_dim), dims.heads, dims.key_dim, dims.value_dim});
}

kda::Dims validate(std::string_view name, const KdaBackward& op) {
  const kda::Dims dims = validate_inputs(name, op);
  const DType accurate = accurate_type(op.q.dtype());
  const Shape keys{dims.tokens, dims.heads, dims.key_dim};
  const Shape values{dims.tokens, dims.heads, dims.value_dim};
  expect(name, "d_o", op.d_o, op.q.dtype(), values);
  validate_chunk_states(name, op.chunk_states, accurate, dims);
  expect_states(name, "dfinal_state", op.dfinal_state, accurate, dims);
  expect_states(name, "dinitial_state", op.dinitial_state, accurate, dims);
  expect(name, "dq", op.dq, accurate, keys);
  expect(name, "dk", op.dk, accurate, keys);
  expect(name, "dv", op.dv, accurate, values);
  expect(name, "dg", op.dg, accurate, keys);
  expect(name, "dbeta", op.dbeta, accurate, {dims.tokens, dims.heads});
  return dims;
}

// What the CUDA versions need beyond that. Alignment is known when there is memory.
void expect_cuda_sizes(std::string_view name, const kda::Dims& dims) {
  const auto check = [&](std::string_view what, int64_t size) {
    if (size < cuda::kKdaDimStep || size > cuda::kKdaMaxDim || size % cuda::kKdaDimStep != 0) {
      throw ShapeError("{}: {} must be a multiple of {} up to {} on a GPU, got {}", name, what, cuda::kKdaDimStep, cuda::kKdaMaxDim, size);
    }
  };
  check("key_dim", dims.key_dim);
  check("value_dim", dims.value_dim);
  constexpr int64_t kMostHeads = 2048;  // heads times slices of the value dimension are the second dimension of a grid
  if (dims.heads > kMostHeads) {
    throw ShapeError("{}: q must have at most {} heads on a GPU, got {}", name, kMostHeads, dims.heads);
  }
}

void expect_aligned(std::string_view name, std::initializer_list<std::pair<std::string_view, const TensorView*>> arguments) {
  constexpr uintptr_t kBytes = 16;
  for (const auto& [argument, view] : arguments) {
    if (view->is_present() && view->numel() > 0 && reinterpret_cast<uintptr_t>(view->raw()) % kBytes != 0) {
      throw ShapeError("{}: {} must begin at a multiple of {} bytes on a GPU; copy it to a tensor of its own", name, argument, kBytes);
    }
  }
}

// Here is the choice among CUDA versions: forward and backward of a call choose alike, as the second reads what the first saved.
void forward_cuda(ExecContext& ctx, const KdaForward& op, const kda::Dims& dims) {
  expect_cuda_sizes("kda_forward", dims);
  const ArenaScope scope(ctx.scratch());
  if (cuda::is_for_kda_hopper(ctx.device(), op)) {
    const TensorView scratch = cuda::take_kda_hopper_scratch(ctx.scratch(), op);
    if (!ctx.is_planning()) {
      expect_aligned("kda_forward", {{"q", &op.q}, {"k", &op.k}, {"v", &op.v}, {"g", &op.g}, {"o", &op.o},
                                     {"chunk_states", &op.chunk_states}});
      cuda::kda_hopper_forward(ctx, op, scratch);
    }
    return;
  }
  const cuda::KdaScratch scratch = cuda::take_kda_scratch(ctx.scratch(), op);
  if (ctx.is_planning()) {
    return;
  }
  expect_aligned("kda_forward", {{"v", &op.v}, {"o", &op.o}, {"initial_state", &op.initial_state}, {"final_state", &op.final_state},
                                 {"chunk_states", &op.chunk_states}});
  cuda::kda_forward(ctx, op, scratch);
}

void backward_cuda(ExecContext& ctx, const KdaBackward& op, const kda::Dims& dims) {
  expect_cuda_sizes("kda_backward", dims);
  const ArenaScope scope(ctx.scratch());
  if (cuda::is_for_kda_hopper(ctx.device(), op)) {
    const TensorView scratch = cuda::take_kda_hopper_scratch(ctx.scratch(), op);
    if (!ctx.is_planning()) {
      expect_aligned("kda_backward", {{"d_o", &op.d_o}, {"q", &op.q}, {"k", &op.k}, {"v", &op.v}, {"g", &op.g},
                                      {"chunk_states", &op.chunk_states}, {"dq", &op.dq}, {"dk", &op.dk}, {"dv", &op.dv}, {"dg", &op.dg}});
      cuda::kda_hopper_backward(ctx, op, scratch);
    }
    return;
  }
  const cuda::KdaScratch scratch = cuda::take_kda_scratch(ctx.scratch(), op);
  if (ctx.is_planning()) {
    return;
  }
  expect_aligned("kda_backward", {{"d_o", &op.d_o}, {"v", &op.v}, {"dv", &op.dv}, {"chunk_states", &op.chunk_states},
                                  {"dfinal_state", &op.dfinal_state}, {"dinitial_state", &op.dinitial_state}});
  cuda::kda_backward(ctx, op, scratch);
}

}  // namespace

void kda_forward(ExecContext& ctx, const KdaForward& op) {
  const kda::Dims dims = validate("kda_forward", op);
  if (op.chunk_states.is_present()) {
    validate_chunk_states("kda_forward", op.chunk_states, accurate_type(op.q.dtype()), dims);
  }
  if (ctx.device().kind == DeviceKind::Cuda) {
    forward_cuda(ctx, op, dims);
    return;
  }
  dispatch_float(op.q.dtype(), "kda_forward", [&](auto zero) { kda::forward_cpu<decltype(zero)>(ctx, op, dims); });
}

void kda_recurrent_forward(ExecContext& ctx, const KdaForward& op) {
  const kda::Dims dims = validate("kda_recurrent_forward", op);
  if (op.chunk_states.is_present()) {
    throw UsageError("kda_recurrent_forward: chunk_states must be absent; only kda_forward has chunks");
  }
  if (ctx.device().kind == DeviceKind::Cuda) {
    if (!ctx.is_planning()) {
      throw_no_cuda("kda_recurrent_forward");
    }
    return;
  }
  dispatch_float(op.q.dtype(), "kda_recurrent_forward",
                 [&](auto zero) { kda::recurrent_forward_cpu<decltype(zero)>(ctx, op, dims); });
}

void kda_backward(ExecContext& ctx, const KdaBackward& op) {
  const kda::Dims dims = validate("kda_backward", op);
  if (ctx.device().kind == DeviceKind::Cuda) {
    backward_cuda(ctx, op, dims);
    return;
  }
  dispatch_float(op.q.dtype(), "kda_backward", [&](auto zero) { kda::backward_cpu<decltype(zero)>(ctx, op, dims); });
}

}  // namespace longhaul
