// Chunkwise forward of Kimi Delta Attention on the CPU. For a chunk with incoming state S (README.md for the derivation):
//   Vt = (I + L)^-1 diag(beta) (V - (K e^G) S)
//   O  = (Q e^G) S + A Vt
//   S' = Diag(e^{G_C}) S + (K e^{G_C - G})^T Vt
// One document, one head, chunk after chunk, so that the state stays in the cache.
#include "base/profile.h"
#include "kernels/kda/chunk_state.h"
#include "kernels/kda/flush_denormals.h"
#include "kernels/kda/kda_cpu.h"

namespace longhaul::kda {
namespace {

using tiles::Into;
using tiles::Sum;

template <class T>
class Forward {
 public:
  Forward(Arena& arena, const Dims& dims)
      : dims_(dims),
        in_(arena, dims),
        scores_(arena, dims),
        decayed_(take_panel<T>(arena, "kda.decayed", kKdaChunk, dims.key_width())),
        residual_(take_panel<T>(arena, "kda.residual", kKdaChunk, dims.value_width())),
        o_(take_panel<T>(arena, "kda.o", kKdaChunk, dims.value_width())),
        state_(take_panel<T>(arena, "kda.state", dims.key_width(), dims.value_width())) {}

  [[nodiscard]] Panel<T> state() const { return state_; }

  // Advances the state over one chunk and writes its rows of o.
  void chunk(const Tensors<T>& tensors, const Chunk& chunk, int64_t head, T* o) {
    const int64_t rows = chunk.padded_rows();
    const int64_t key = dims_.key_width();
    const int64_t value = dims_.value_width();
    load_inputs(tensors, dims_, chunk, head, in_);
    scores_.compute(in_, chunk.tiles(), tensors.diagonal);
    multiply_rows(rows * key, in_.k.data, in_.decay.from_start.data, decayed_.data);
    compute_residual(in_, decayed_, scores_, state_, rows, residual_);

    multiply_rows(rows * key, in_.q.data, in_.decay.from_start.data, decayed_.data);
    tiles::product<Sum::Full, Into::Set, T>(rows, value, key, {decayed_.data, key, 1}, state_.data, value, o_.data, value);
    tiles::product<Sum::UpToRow, Into::Add, T>(rows, value, rows, {scores_.a.data, kKdaChunk, 1}, residual_.data, value,
                                               o_.data, value);
    store_panel(o_, chunk.rows, dims_.value_dim, o + dims_.value_offset(chunk.first_token, head),
                dims_.heads * dims_.value_dim);

    multiply_rows(rows * key, in_.k.data, in_.decay.to_last.data, decayed_.data);
    scale_rows(key, value, in_.decay.total.data, state_.data);
    tiles::product<Sum::Full, Into::Add, T>(key, value, rows, {decayed_.data, 1, key}, residual_.data, value, state_.data,
                                            value);
  }

 private:
  Dims dims_;
  ChunkInputs<T> in_;
  ChunkScores<T> scores_;
  Panel<T> decayed_;   // [64, key] q or k times a decay
  Panel<T> residual_;  // [64, value]
  Panel<T> o_;         // [64, value]
  Panel<T> state_;     // [key, value]
};

}  // namespace

template <class T>
void forward_cpu(ExecContext& ctx, const KdaForward& op, const Dims& dims) {
  const ProfileScope profile("KDA");
  const ArenaScope scope(ctx.scratch());
  Forward<T> forward(ctx.scratch(), dims);
  if (ctx.is_planning()) {
    return;
  }
  const tiles::FlushDenormals flush;
  const Tensors<T> tensors{.q = op.q.data<T>(),
                           .k = op.k.data<T>(),
                           .v = op.v.data<T>(),
                           .g = op.g.data<T>(),
                           .beta = op.beta.data<T>(),
                           .scale = static_cast<T>(op.scale),
                           .diagonal = op.tiles};
  for_each_document("kda_forward", op.cu_seqlens.data<int64_t>(), dims, [&](const Document& document) {
    for (int64_t head = 0; head < dims.heads; ++head) {
      load_state(op.initial_state, dims.state_offset(document.index, head), dims, forward.state());
      for (int64_t c = 0; c < document.chunks(); ++c) {
        const Chunk chunk = chunk_of(document, c);
        store_state(forward.state(), dims, op.chunk_states, dims.state_offset(chunk.index, head));
        forward.chunk(tensors, chunk, head, op.o.data<T>());
      }
      store_state(forward.state(), dims, op.final_state, dims.state_offset(document.index, head));
    }
  });
}

template void forward_cpu<float>(ExecContext&, const KdaForward&, const Dims&);
template void forward_cpu<double>(ExecContext&, const KdaForward&, const Dims&);

}  // namespace longhaul::kda
