// See kda_segment.h. Both runs go through kda_forward, so that each backend's fastest kernels serve them.
#include "kernels/kda/kda_segment.h"

#include <algorithm>
#include <cstring>

#include "kernels/expect.h"
#include "kernels/kda/kda_cuda.h"

namespace longhaul {
namespace {

template <class T>
void make_inputs(const TensorView& zeros, const TensorView& identities) {
  std::memset(zeros.raw(), 0, static_cast<size_t>(zeros.numel()) * sizeof(T));
  const int64_t n = identities.size(2);
  T* to = identities.data<T>();
  for (int64_t matrix = 0; matrix < identities.size(0) * identities.size(1); ++matrix) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        *to++ = i == j ? T{1} : T{0};
      }
    }
  }
}

}  // namespace

void kda_segment(ExecContext& ctx, const KdaSegment& op) {
  const char* name = "kda_segment";
  expect_rank(name, "k", op.k, 3, "[tokens, heads, key_dim]");
  expect_rank(name, "v", op.v, 3, "[tokens, heads, value_dim]");
  expect_rank(name, "cu_seqlens", op.cu_seqlens, 1, "[documents + 1]");
  const int64_t documents = op.cu_seqlens.size(0) - 1, heads = op.k.size(1), key_dim = op.k.size(2), value_dim = op.v.size(2);
  const DType compute = op.k.dtype(), accurate = accurate_type(compute);
  expect(name, "v", op.v, compute, {op.k.size(0), heads, value_dim});
  expect(name, "transition", op.transition, accurate, {documents, heads, key_dim, key_dim});
  expect(name, "final_state", op.final_state, accurate, {documents, heads, key_dim, value_dim});

  const ArenaScope scope(ctx.scratch());
  const Shape keys{op.k.size(0), heads, key_dim};
  const TensorView zeros = take(ctx.scratch(), "kda.zeros", compute, keys);
  const TensorView outputs = take(ctx.scratch(), "kda.outputs", compute, {op.k.size(0), heads, std::max(key_dim, value_dim)});
  const TensorView identities = take(ctx.scratch(), "kda.identities", accurate, {documents, heads, key_dim, key_dim});
  if (!ctx.is_planning()) {
    if (ctx.device().kind == DeviceKind::Cuda) {
      cuda::make_kda_segment_inputs(ctx, zeros, identities);
    } else {
      dispatch_float(compute, name, [&](auto zero) { make_inputs<decltype(zero)>(zeros, identities); });
    }
  }
  const auto outputs_of = [&](int64_t dim) {
    return outputs.reshape({outputs.numel()}).slice(0, 0, keys[0] * heads * dim).reshape({keys[0], heads, dim});
  };
  KdaForward forward{.q = op.k, .k = op.k, .v = op.v, .g = op.g, .beta = op.beta, .cu_seqlens = op.cu_seqlens, .tiles = op.tiles,
                     .o = outputs_of(value_dim), .final_state = op.final_state};
  kda_forward(ctx, forward);
  forward.v = zeros;
  forward.initial_state = identities;
  forward.o = outputs_of(key_dim);
  forward.final_state = op.transition;
  kda_forward(ctx, forward);
}

}  // namespace longhaul
