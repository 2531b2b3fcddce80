// The recurrence of Kimi Delta Attention, token by token: the definition (Kimi Linear, arXiv:2510.26692, eq. 1).
//   S <- Diag(e^{g_t}) S;   S <- S + beta_t k_t (v_t - S^T k_t)^T;   o_t = S^T (scale * q_t)
#include <algorithm>
#include <cmath>

#include "kernels/kda/kda_cpu.h"
#include "kernels/kda/panels.h"

namespace longhaul::kda {
namespace {

template <class T>
struct Token {
  const T* q;  // [key_dim]
  const T* k;  // [key_dim]
  const T* v;  // [value_dim]
  const T* g;  // [key_dim]
  T beta;
  T scale;
  T* o;  // [value_dim]
};

// state is [key_dim, value_dim]; residual is work of [value_dim].
template <class T>
void step(const Token<T>& token, int64_t key_dim, int64_t value_dim, T* state, T* residual) {
  for (int64_t c = 0; c < key_dim; ++c) {
    const T alpha = std::exp(token.g[c]);
    for (int64_t e = 0; e < value_dim; ++e) {
      state[c * value_dim + e] *= alpha;
    }
  }
  std::copy_n(token.v, value_dim, residual);
  for (int64_t c = 0; c < key_dim; ++c) {
    for (int64_t e = 0; e < value_dim; ++e) {
      residual[e] -= token.k[c] * state[c * value_dim + e];
    }
  }
  std::fill_n(token.o, value_dim, T{0});
  for (int64_t c = 0; c < key_dim; ++c) {
    const T write = token.beta * token.k[c];
    const T read = token.scale * token.q[c];
    for (int64_t e = 0; e < value_dim; ++e) {
      state[c * value_dim + e] += write * residual[e];
      token.o[e] += read * state[c * value_dim + e];
    }
  }
}

}  // namespace

template <class T>
void recurrent_forward_cpu(ExecContext& ctx, const KdaForward& op, const Dims& dims) {
  const ArenaScope scope(ctx.scratch());
  T* state = take_panel<T>(ctx.scratch(), "kda.state", dims.key_dim, dims.value_dim).data;
  T* residual = take_panel<T>(ctx.scratch(), "kda.residual", 1, dims.value_dim).data;
  if (ctx.is_planning()) {
    return;
  }
  const int64_t state_size = dims.key_dim * dims.value_dim;
  for_each_document("kda_recurrent_forward", op.cu_seqlens.data<int64_t>(), dims, [&](const Document& document) {
    for (int64_t head = 0; head < dims.heads; ++head) {
      const int64_t state_at = dims.state_offset(document.index, head);
      if (op.initial_state.is_present()) {
        std::copy_n(op.initial_state.data<T>() + state_at, state_size, state);
      } else {
        std::fill_n(state, state_size, T{0});
      }
      for (int64_t t = document.first_token; t < document.first_token + document.length; ++t) {
        const int64_t key_at = dims.key_offset(t, head);
        const int64_t value_at = dims.value_offset(t, head);
        step(Token<T>{.q = op.q.data<T>() + key_at,
                      .k = op.k.data<T>() + key_at,
                      .v = op.v.data<T>() + value_at,
                      .g = op.g.data<T>() + key_at,
                      .beta = op.beta.data<T>()[t * dims.heads + head],
                      .scale = static_cast<T>(op.scale),
                      .o = op.o.data<T>() + value_at},
             dims.key_dim, dims.value_dim, state, residual);
      }
      if (op.final_state.is_present()) {
        std::copy_n(state, state_size, op.final_state.data<T>() + state_at);
      }
    }
  });
}

template void recurrent_forward_cpu<float>(ExecContext&, const KdaForward&, const Dims&);
template void recurrent_forward_cpu<double>(ExecContext&, const KdaForward&, const Dims&);

}  // namespace longhaul::kda
