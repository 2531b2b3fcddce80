// See batch.h.
#include "train/batch.h"

#include "base/cast.h"
#include "device/copy_bytes.h"

namespace longhaul {

Batches::Batches(ExecContext& ctx, Arena& memory, int64_t micro_batches, int64_t sequences, const std::function<Sequence(int64_t)>& read) {
  memory.release({});
  for (int64_t m = 0; m < micro_batches; ++m) {
    Sequence packed;
    for (int64_t s = 0; s < sequences; ++s) {
      append(packed, read(m * sequences + s));
    }
    const auto tokens = narrow<int64_t>(packed.tokens.size());
    const auto bounds = narrow<int64_t>(packed.cu_seqlens.size());
    views_.push_back({.ids = place(ctx, memory, "batch.ids", Tensor::from(packed.tokens, {tokens})),
                      .targets = place(ctx, memory, "batch.targets", Tensor::from(packed.targets, {tokens})),
                      .cu_seqlens = place(ctx, memory, "batch.cu_seqlens", Tensor::from(packed.cu_seqlens, {bounds}))});
    documents_ += bounds - 1;
  }
}

int64_t Batches::memory_bytes(int64_t micro_batches, int64_t tokens, int64_t documents) {
  constexpr int64_t kRounding = 256;  // of an arena
  return micro_batches * (2 * round_up(tokens * size_of(DType::I32), kRounding) + round_up((documents + 1) * size_of(DType::I64), kRounding));
}

// The host's memory stays until the batch is done, though the driver has read it when the call returns.
TensorView Batches::place(ExecContext& ctx, Arena& memory, const char* name, Tensor host) {
  owners_.push_back(std::move(host));
  const TensorView from = owners_.back();
  if (ctx.device().kind == DeviceKind::Cpu) {
    return from;
  }
  const TensorView to = take(memory, name, from.spec());
  copy_bytes_async(ctx.cuda_context().stream(), {.device = {}, .data = from.raw()}, {.device = ctx.device(), .data = to.raw()}, from.bytes());
  return to;
}

}  // namespace longhaul
