// The recurrence of Kimi Delta Attention, token by token: the definition (Kimi Linear, arXiv:2510.26692, eq. 1).
#include <algorithm>

#include "kernels/kda/kda_cpu.h"
#include "kernels/kda/panels.h"
#include "kernels/kda/recurrent_step.h"

namespace longhaul::kda {

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
        recurrent_step(Token<T>{.q = op.q.data<T>() + key_at,
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
