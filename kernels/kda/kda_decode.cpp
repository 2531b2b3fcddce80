// Validation, the CPU version and the choice of backend of decoding; see kda_decode.h.
#include "kernels/kda/kda_decode.h"

#include "kernels/expect.h"
#include "kernels/kda/cuda_arguments.h"
#include "kernels/kda/panels.h"
#include "kernels/kda/recurrent_step.h"

namespace longhaul {
namespace {

// A sequence stands for a document of one token.
kda::Dims validate(const KdaDecode& op) {
  const char* name = "kda_decode";
  expect_rank(name, "q", op.q, 3, "[sequences, heads, key_dim]");
  expect_rank(name, "v", op.v, 3, "[sequences, heads, value_dim]");
  const kda::Dims dims{.tokens = op.q.size(0), .heads = op.q.size(1), .key_dim = op.q.size(2), .value_dim = op.v.size(2),
                       .documents = op.q.size(0)};
  const DType compute = op.q.dtype(), accurate = accurate_type(compute);
  const Shape keys{dims.tokens, dims.heads, dims.key_dim}, values{dims.tokens, dims.heads, dims.value_dim};
  expect(name, "q", op.q, compute, keys);
  expect(name, "k", op.k, compute, keys);
  expect(name, "v", op.v, compute, values);
  expect(name, "g", op.g, accurate, keys);
  expect(name, "beta", op.beta, accurate, {dims.tokens, dims.heads});
  expect(name, "state", op.state, accurate, {dims.documents, dims.heads, dims.key_dim, dims.value_dim});
  expect(name, "o", op.o, compute, values);
  return dims;
}

template <class T>
void decode_cpu(ExecContext& ctx, const KdaDecode& op, const kda::Dims& dims) {
  const ArenaScope scope(ctx.scratch());
  T* residual = kda::take_panel<T>(ctx.scratch(), "kda.residual", 1, dims.value_dim).data;
  if (ctx.is_planning()) {
    return;
  }
  for (int64_t sequence = 0; sequence < dims.tokens; ++sequence) {
    for (int64_t head = 0; head < dims.heads; ++head) {
      const int64_t key_at = dims.key_offset(sequence, head), value_at = dims.value_offset(sequence, head);
      kda::recurrent_step(kda::Token<T>{.q = op.q.data<T>() + key_at,
                                        .k = op.k.data<T>() + key_at,
                                        .v = op.v.data<T>() + value_at,
                                        .g = op.g.data<T>() + key_at,
                                        .beta = op.beta.data<T>()[sequence * dims.heads + head],
                                        .scale = static_cast<T>(op.scale),
                                        .o = op.o.data<T>() + value_at},
                          dims.key_dim, dims.value_dim, op.state.data<T>() + dims.state_offset(sequence, head), residual);
    }
  }
}

}  // namespace

void kda_decode(ExecContext& ctx, const KdaDecode& op) {
  const kda::Dims dims = validate(op);
  if (ctx.device().kind == DeviceKind::Cuda) {
    kda::expect_cuda_sizes("kda_decode", dims);
    if (!ctx.is_planning()) {
      kda::expect_aligned("kda_decode", {{"v", &op.v}, {"state", &op.state}, {"o", &op.o}});
      cuda::kda_decode(ctx, op);
    }
    return;
  }
  dispatch_float(op.q.dtype(), "kda_decode", [&](auto zero) { decode_cpu<decltype(zero)>(ctx, op, dims); });
}

}  // namespace longhaul
