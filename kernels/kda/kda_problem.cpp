// See kda_problem.h.
#include "kernels/kda/kda_problem.h"

namespace longhaul::testing {
namespace {

// Divides rows of the innermost dimension by their norms.
void normalise(const Tensor& tensor) {
  const int64_t n = tensor.view().size(-1);
  const auto values = tensor.values<double>();
  for (int64_t row = 0; row < tensor.view().numel() / std::max<int64_t>(n, 1); ++row) {
    double square = 0;
    for (int64_t c = 0; c < n; ++c) {
      const double x = values[static_cast<size_t>(row * n + c)];
      square += x * x;
    }
    for (int64_t c = 0; c < n; ++c) {
      values[static_cast<size_t>(row * n + c)] /= std::sqrt(square + 1e-6);
    }
  }
}

void sigmoid_times(const Tensor& tensor, double factor) {
  for (double& x : tensor.values<double>()) {
    x = factor / (1 + std::exp(-x));
  }
}

KdaForward forward_op(const KdaProblem& p, const KdaResult& r) {
  return {.q = p.q,
          .k = p.k,
          .v = p.v,
          .g = p.g,
          .beta = p.beta,
          .cu_seqlens = p.cu_seqlens,
          .scale = p.scale,
          .tiles = p.tiles,
          .initial_state = p.initial_state,
          .o = r.o,
          .final_state = r.final_state,
          .chunk_states = r.chunk_states};
}

Shape state_shape(const KdaProblem& p, int64_t count) {
  return {count, p.sizes.heads, p.sizes.key_dim, p.sizes.value_dim};
}

}  // namespace

KdaProblem::KdaProblem(const KdaSizes& s, KdaTiles t)
    : sizes(s), tiles(t), scale(1 / std::sqrt(static_cast<double>(s.key_dim))) {
  const Shape keys{s.tokens(), s.heads, s.key_dim};
  const Shape states{s.documents(), s.heads, s.key_dim, s.value_dim};
  q = random_tensor(DType::F64, keys, "kda.q");
  k = random_tensor(DType::F64, keys, "kda.k");
  v = random_tensor(DType::F64, {s.tokens(), s.heads, s.value_dim}, "kda.v");
  g = random_tensor(DType::F64, keys, "kda.g", 1.5, -1);
  beta = random_tensor(DType::F64, {s.tokens(), s.heads}, "kda.beta", 1.5);
  initial_state = random_tensor(DType::F64, states, "kda.initial_state");
  cu_seqlens = cu_seqlens_of(s.lengths);
  normalise(q);
  normalise(k);
  sigmoid_times(g, -5);
  sigmoid_times(beta, 1);
}

KdaProblem KdaProblem::in(DType dtype) const {
  KdaProblem p;
  p.sizes = sizes;
  p.tiles = tiles;
  p.scale = scale;
  p.q = converted(q, dtype);
  p.k = converted(k, dtype);
  p.v = converted(v, dtype);
  p.g = converted(g, dtype);
  p.beta = converted(beta, dtype);
  p.cu_seqlens = cu_seqlens_of(sizes.lengths);
  if (initial_state.view().is_present()) {
    p.initial_state = converted(initial_state, dtype);
  }
  return p;
}

KdaProblem KdaProblem::document(int64_t begin, int64_t length, int64_t state) const {
  KdaProblem p;
  p.sizes = sizes;
  p.sizes.lengths = {length};
  p.tiles = tiles;
  p.scale = scale;
  p.q = rows_of(q, begin, begin + length);
  p.k = rows_of(k, begin, begin + length);
  p.v = rows_of(v, begin, begin + length);
  p.g = rows_of(g, begin, begin + length);
  p.beta = rows_of(beta, begin, begin + length);
  p.cu_seqlens = cu_seqlens_of({length});
  if (initial_state.view().is_present()) {
    p.initial_state = rows_of(initial_state, state, state + 1);
  }
  return p;
}

Tensor rows_of(const Tensor& tensor, int64_t begin, int64_t end) {
  return converted(tensor.view().slice(0, begin, end), tensor.view().dtype());
}

KdaResult run_chunkwise(const KdaProblem& p) {
  ExecContext ctx = ExecContext::cpu();
  return run_chunkwise(p, ctx);
}

KdaResult run_chunkwise(const KdaProblem& p, ExecContext& ctx) {
  const DType dtype = p.q.view().dtype();
  KdaResult r{.o = poisoned(dtype, p.v.view().shape()),
              .final_state = poisoned(dtype, state_shape(p, p.sizes.documents())),
              .chunk_states = poisoned(dtype, state_shape(p, kda_state_rows(p.sizes.tokens(), p.sizes.documents(), p.sizes.key_dim)))};
  kda_forward(ctx, forward_op(p, r));
  return r;
}

KdaResult run_recurrent(const KdaProblem& p) {
  const DType dtype = p.q.view().dtype();
  KdaResult r{.o = poisoned(dtype, p.v.view().shape()),
              .final_state = poisoned(dtype, state_shape(p, p.sizes.documents()))};
  ExecContext ctx = ExecContext::cpu();
  kda_recurrent_forward(ctx, forward_op(p, r));
  return r;
}

KdaGradients run_backward(const KdaProblem& p, const TensorView& d_o, const TensorView& dfinal_state) {
  ExecContext ctx = ExecContext::cpu();
  return run_backward(p, d_o, dfinal_state, ctx);
}

KdaGradients run_backward(const KdaProblem& p, const TensorView& d_o, const TensorView& dfinal_state, ExecContext& ctx) {
  const DType dtype = p.q.view().dtype();
  const KdaResult forward = run_chunkwise(p, ctx);
  KdaGradients r{.dq = poisoned(dtype, p.q.view().shape()),
                 .dk = poisoned(dtype, p.k.view().shape()),
                 .dv = poisoned(dtype, p.v.view().shape()),
                 .dg = poisoned(dtype, p.g.view().shape()),
                 .dbeta = poisoned(dtype, p.beta.view().shape()),
                 .dinitial_state = poisoned(dtype, state_shape(p, p.sizes.documents()))};
  kda_backward(ctx, {.d_o = d_o,
                     .q = p.q,
                     .k = p.k,
                     .v = p.v,
                     .g = p.g,
                     .beta = p.beta,
                     .cu_seqlens = p.cu_seqlens,
                     .scale = p.scale,
                     .tiles = p.tiles,
                     .chunk_states = forward.chunk_states,
                     .dfinal_state = dfinal_state,
                     .dq = r.dq,
                     .dk = r.dk,
                     .dv = r.dv,
                     .dg = r.dg,
                     .dbeta = r.dbeta,
                     .dinitial_state = r.dinitial_state});
  return r;
}

}  // namespace longhaul::testing
