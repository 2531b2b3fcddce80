// Scratch of the general CUDA version of Kimi Delta Attention; needs no GPU, so that planning works without one.
#include <algorithm>

#include "kernels/kda/general/layout.h"
#include "kernels/kda/kda_cuda.h"

namespace longhaul::cuda {
namespace {

struct ScratchSizes {
  int64_t documents, heads, key_dim, value_dim, max_chunks;

  template <class Op>
  explicit ScratchSizes(const Op& op)
      : documents(op.cu_seqlens.size(0) - 1),
        heads(op.q.size(1)),
        key_dim(op.q.size(2)),
        value_dim(op.v.size(2)),
        max_chunks(kda_max_chunks(op.q.size(0), documents)) {}

  [[nodiscard]] int64_t image() const { return kda_general::image_layout(key_dim).floats(); }
  // Chunks whose scratch of `floats` a head fits the target, at least one.
  [[nodiscard]] int64_t group(int64_t floats) const {
    const int64_t bytes = std::max<int64_t>(1, heads * floats * static_cast<int64_t>(sizeof(float)));
    return std::min(max_chunks, std::max<int64_t>(1, kKdaScratchTarget / bytes));
  }
};

KdaScratch take_common(Arena& arena, const ScratchSizes& s, int64_t group) {
  return {.group_chunks = group,
          .first_chunks = take(arena, "kda.first_chunks", DType::I64, {s.documents + 1}),
          .chunks = take(arena, "kda.chunks", DType::I64, {s.max_chunks, 2}),
          .images = take(arena, "kda.images", DType::F32, {group, s.heads, s.image()}),
          .carry = take(arena, "kda.carry", DType::F32, {2, s.heads, s.key_dim, s.value_dim})};
}

}  // namespace

KdaScratch take_kda_scratch(Arena& arena, const KdaForward& op) {
  const ScratchSizes s(op);
  return take_common(arena, s, s.group(s.image()));
}

KdaScratch take_kda_scratch(Arena& arena, const KdaBackward& op) {
  const ScratchSizes s(op);
  const int64_t values = kKdaChunk * s.value_dim, state = s.key_dim * s.value_dim;
  const int64_t group = s.group(s.image() + 2 * values + state);
  KdaScratch scratch = take_common(arena, s, group);
  scratch.residuals = take(arena, "kda.residuals", DType::F32, {group, s.heads, kKdaChunk, s.value_dim});
  scratch.d_residuals = take(arena, "kda.d_residuals", DType::F32, {group, s.heads, kKdaChunk, s.value_dim});
  scratch.d_states = take(arena, "kda.d_states", DType::F32, {group, s.heads, s.key_dim, s.value_dim});
  return scratch;
}

}  // namespace longhaul::cuda
