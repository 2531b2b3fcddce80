// See attn_res_mix.h. Checks the arguments, takes scratch and picks the backend.
#include "kernels/attn_res_mix/attn_res_mix.h"

#include "base/cast.h"
#include "kernels/attn_res_mix/attn_res_mix_cpu.h"
#include "kernels/attn_res_mix/attn_res_mix_cuda.h"
#include "kernels/expect.h"
#include "kernels/gpu/partial_sums.h"

namespace longhaul {
namespace {

// Returns the common shape [tokens, hidden] of the sources.
Shape expect_sources(const ExecContext& ctx, std::string_view op, std::span<const TensorView> sources, const TensorView& norm_scale,
                     const TensorView& query) {
  if (sources.empty() || !sources[0].is_present() || sources[0].rank() != 2) {
    throw ShapeError("{}: wants at least one source [tokens, hidden], got {}", op,
                     sources.empty() ? "none" : sources[0].to_string());
  }
  if (ctx.device().kind == DeviceKind::Cuda && narrow<int64_t>(sources.size()) > cuda::kMaxMixSources) {
    throw ShapeError("{}: a GPU mixes at most {} sources, got {}; use a larger attn_res_block_size", op, cuda::kMaxMixSources, sources.size());
  }
  const Shape shape = sources[0].shape();
  const DType dtype = sources[0].dtype();
  for (size_t i = 0; i < sources.size(); ++i) {
    expect(op, fmt::format("sources[{}]", i), sources[i], dtype, shape);
  }
  expect(op, "norm_scale", norm_scale, dtype, {shape[1]});
  expect(op, "query", query, dtype, {shape[1]});
  return shape;
}

cpu::AttnResMixScratch take_scratch(ExecContext& ctx, DType dtype, int64_t sources, int64_t hidden) {
  Arena& arena = ctx.scratch();
  return {.folded = take(arena, "attn_res_mix.folded", dtype, {hidden}),
          .probabilities = take(arena, "attn_res_mix.probabilities", dtype, {sources}),
          .scores = take(arena, "attn_res_mix.scores", dtype, {sources}),
          .inv_rms = take(arena, "attn_res_mix.inv_rms", dtype, {sources}),
          .dfolded = {}};
}

}  // namespace

void attn_res_mix_forward(ExecContext& ctx, const AttnResMixForward& op) {
  constexpr std::string_view kName = "attn_res_mix_forward";
  const Shape shape = expect_sources(ctx, kName, op.sources, op.norm_scale, op.query);
  const DType dtype = op.sources[0].dtype();
  expect(kName, "y", op.y, dtype, shape);
  const ArenaScope scope(ctx.scratch());
  if (ctx.device().kind == DeviceKind::Cuda) {
    if (!ctx.is_planning()) {
      cuda::attn_res_mix_forward(ctx, op);
    }
    return;
  }
  const auto scratch = take_scratch(ctx, accurate_type(dtype), narrow<int64_t>(op.sources.size()), shape[1]);
  if (ctx.is_planning()) {
    return;
  }
  cpu::attn_res_mix_forward(op, scratch);
}

void attn_res_mix_backward(ExecContext& ctx, const AttnResMixBackward& op) {
  constexpr std::string_view kName = "attn_res_mix_backward";
  const Shape shape = expect_sources(ctx, kName, op.sources, op.norm_scale, op.query);
  const DType dtype = op.sources[0].dtype();
  expect(kName, "dy", op.dy, dtype, shape);
  if (op.dsources.size() != op.sources.size()) {
    throw ShapeError("{}: {} sources have {} gradients", kName, op.sources.size(), op.dsources.size());
  }
  for (size_t i = 0; i < op.dsources.size(); ++i) {
    expect(kName, fmt::format("dsources[{}]", i), op.dsources[i], accurate_type(dtype), shape);
  }
  expect_gradient(kName, "dnorm_scale", op.dnorm_scale, dtype, {shape[1]});
  expect_gradient(kName, "dquery", op.dquery, dtype, {shape[1]});
  const ArenaScope scope(ctx.scratch());
  if (ctx.device().kind == DeviceKind::Cuda) {
    const cuda::AttnResMixScratch on_gpu{.partials = cuda::take_partials(ctx.scratch(), "attn_res_mix.partials", shape[0], shape[1]),
                                         .dfolded = take(ctx.scratch(), "attn_res_mix.dfolded", DType::F32, {shape[1]})};
    if (!ctx.is_planning()) {
      cuda::attn_res_mix_backward(ctx, op, on_gpu);
    }
    return;
  }
  auto scratch = take_scratch(ctx, accurate_type(dtype), narrow<int64_t>(op.sources.size()), shape[1]);
  scratch.dfolded = take(ctx.scratch(), "attn_res_mix.dfolded", DType::F64, {shape[1]});
  if (ctx.is_planning()) {
    return;
  }
  cpu::attn_res_mix_backward(op, scratch);
}

}  // namespace longhaul
