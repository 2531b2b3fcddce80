// Chunkwise backward of Kimi Delta Attention on the CPU: chunks in reverse, everything recomputed from the inputs and the
// saved states entering each chunk. With R = diag(beta) (V - (K e^G) S) and Vt = (I + L)^-1 R, so that
//   O = (Q e^G) S + A Vt   and   S' = Diag(e^{G_C}) S + (K e^{G_C - G})^T Vt,
// the gradients of one chunk are (README.md derives them):
//   dVt = A^T dO + (K e^{G_C - G}) dS'             dR = (I + L)^-T dVt
//   dA  = tril(dO Vt^T)                            dL = -stril(dR Vt^T)
//   d(Q e^G) = dO S^T     d(beta K e^G) = -dR S^T  d(K e^{G_C - G}) = Vt dS'^T
//   dS  = Diag(e^{G_C}) dS' + (Q e^G)^T dO - (beta K e^G)^T dR
// Only V-wide systems are solved; the K-wide W = (I + L)^-1 (beta K e^G) of the papers is never needed.
#include "base/profile.h"
#include "kernels/kda/chunk_state.h"
#include "kernels/kda/flush_denormals.h"
#include "kernels/kda/kda_cpu.h"
#include "kernels/kda/scores_backward.h"

namespace longhaul::kda {
namespace {

using tiles::Into;
using tiles::Sum;

template <class T>
struct Gradients {
  const T* d_o;
  T* dq;
  T* dk;
  T* dv;
  T* dg;
  T* dbeta;
};

template <class T>
class Backward {
 public:
  Backward(Arena& arena, const Dims& dims)
      : dims_(dims),
        in_(arena, dims),
        scores_(arena, dims),
        decayed_(take_panel<T>(arena, "kda.decayed", kKdaChunk, dims.key_width())),
        residual_(take_panel<T>(arena, "kda.residual", kKdaChunk, dims.value_width())),
        residual_t_(take_panel<T>(arena, "kda.residual_t", dims.value_width(), kKdaChunk)),
        d_o_(take_panel<T>(arena, "kda.d_o", kKdaChunk, dims.value_width())),
        d_r_(take_panel<T>(arena, "kda.d_r", kKdaChunk, dims.value_width())),
        d_a_(take_panel<T>(arena, "kda.d_a", kKdaChunk, kKdaChunk)),
        d_l_(take_panel<T>(arena, "kda.d_l", kKdaChunk, kKdaChunk)),
        row_q_(take_panel<T>(arena, "kda.row_q", kKdaChunk, dims.key_width())),
        row_k_(take_panel<T>(arena, "kda.row_k", kKdaChunk, dims.key_width())),
        column_k_(take_panel<T>(arena, "kda.column_k", kKdaChunk, dims.key_width())),
        state_k_(take_panel<T>(arena, "kda.state_k", kKdaChunk, dims.key_width())),
        gate_(take_panel<T>(arena, "kda.gate", kKdaTile, dims.key_width())),
        state_(take_panel<T>(arena, "kda.state", dims.key_width(), dims.value_width())),
        d_state_(take_panel<T>(arena, "kda.d_state", dims.key_width(), dims.value_width())),
        transposed_(take_panel<T>(arena, "kda.transposed", dims.value_width(), dims.key_width())) {}

  [[nodiscard]] Panel<T> state() const { return state_; }
  [[nodiscard]] Panel<T> d_state() const { return d_state_; }

  // With the state entering the chunk in state() and the gradient of the state leaving it in d_state(): writes the chunk's
  // gradients and turns d_state() into the gradient of the state entering it.
  void chunk(const Tensors<T>& tensors, const Gradients<T>& out, const Chunk& chunk, int64_t head) {
    load_inputs(tensors, dims_, chunk, head, in_);
    load_panel(out.d_o + dims_.value_offset(chunk.first_token, head), dims_.heads * dims_.value_dim, chunk.rows,
               dims_.value_dim, chunk.padded_rows(), d_o_);
    recompute(chunk, tensors.diagonal);
    residual_gradient(chunk.padded_rows());
    score_gradients(chunk.tiles());
    panel_gradients(chunk.padded_rows());
    gate_total();
    state_gradient(chunk.padded_rows());
    through_scores(chunk, tensors.diagonal);
    write(out, chunk, head, tensors.scale);
  }

 private:
  void recompute(const Chunk& chunk, KdaTiles diagonal);
  void residual_gradient(int64_t rows);
  void score_gradients(int64_t num_tiles);
  void panel_gradients(int64_t rows);
  void gate_total();
  void state_gradient(int64_t rows);
  void through_scores(const Chunk& chunk, KdaTiles diagonal);
  void write(const Gradients<T>& out, const Chunk& chunk, int64_t head, T scale);

  [[nodiscard]] int64_t key() const { return in_.k.width; }
  [[nodiscard]] int64_t value() const { return in_.v.width; }

  Dims dims_;
  ChunkInputs<T> in_;
  ChunkScores<T> scores_;
  Panel<T> decayed_;     // [64, key] q or k times a decay
  Panel<T> residual_;    // [64, value] Vt
  Panel<T> residual_t_;  // [value, 64]
  Panel<T> d_o_;         // [64, value]
  Panel<T> d_r_;         // [64, value] dVt, then dR
  Panel<T> d_a_;         // [64, 64]
  Panel<T> d_l_;         // [64, 64]
  Panel<T> row_q_;       // [64, key] gradient of q where it carries e^{+G}
  Panel<T> row_k_;       // [64, key] gradient of beta k where it carries e^{+G}
  Panel<T> column_k_;    // [64, key] gradient of k where it carries e^{-G} inside the chunk
  Panel<T> state_k_;     // [64, key] gradient of k through the outgoing state
  Panel<T> gate_;        // [16, key] work; rows 0-2: running gate sums
  Panel<T> state_;       // [key, value]
  Panel<T> d_state_;     // [key, value]
  Panel<T> transposed_;  // [value, key] a state, transposed
};

template <class T>
void Backward<T>::recompute(const Chunk& chunk, KdaTiles diagonal) {
  const int64_t rows = chunk.padded_rows();
  scores_.compute(in_, chunk.tiles(), diagonal);
  multiply_rows(rows * key(), in_.k.data, in_.decay.from_start.data, decayed_.data);
  compute_residual(in_, decayed_, scores_, state_, rows, residual_);
}

// dVt = A^T dO + (K e^{G_C - G}) dS';  dR = (I + L)^-T dVt
template <class T>
void Backward<T>::residual_gradient(int64_t rows) {
  tiles::product<Sum::FromRow, Into::Set, T>(rows, value(), rows, {scores_.a.data, 1, kKdaChunk}, d_o_.data, value(),
                                             d_r_.data, value());
  multiply_rows(rows * key(), in_.k.data, in_.decay.to_last.data, decayed_.data);
  tiles::product<Sum::Full, Into::Add, T>(rows, value(), key(), {decayed_.data, key(), 1}, d_state_.data, value(), d_r_.data,
                                          value());
  tiles::solve_unit_lower_transposed<T>(rows, value(), scores_.l.data, kKdaChunk, d_r_.data, value());
}

// dA = dO Vt^T and dL = -dR Vt^T, in the tiles up to the diagonal. L = diag(beta) (...), so the rows of dL must still be
// multiplied by beta to reach k; through_scores does that after the rows, whose beta gradient needs it unscaled.
template <class T>
void Backward<T>::score_gradients(int64_t num_tiles) {
  const int64_t rows = num_tiles * kKdaTile;
  tiles::transpose(rows, value(), residual_.data, value(), residual_t_.data, kKdaChunk);
  for (int64_t i = 0; i < num_tiles; ++i) {
    const int64_t at = i * kKdaTile;
    const int64_t columns = at + kKdaTile;
    tiles::product<Sum::Full, Into::Set, T>(kKdaTile, columns, value(), {d_o_.row(at), value(), 1}, residual_t_.data,
                                            kKdaChunk, d_a_.row(at), kKdaChunk);
    std::fill(d_l_.row(at), d_l_.row(at + kKdaTile), T{0});
    tiles::product<Sum::Full, Into::Subtract, T>(kKdaTile, columns, value(), {d_r_.row(at), value(), 1}, residual_t_.data,
                                                 kKdaChunk, d_l_.row(at), kKdaChunk);
  }
}

// The gradients of q e^G, beta k e^G and k e^{G_C - G}, before they are multiplied by these decays.
template <class T>
void Backward<T>::panel_gradients(int64_t rows) {
  tiles::transpose(key(), value(), state_.data, value(), transposed_.data, key());
  tiles::product<Sum::Full, Into::Set, T>(rows, key(), value(), {d_o_.data, value(), 1}, transposed_.data, key(), row_q_.data,
                                          key());
  std::fill_n(row_k_.data, rows * key(), T{0});
  tiles::product<Sum::Full, Into::Subtract, T>(rows, key(), value(), {d_r_.data, value(), 1}, transposed_.data, key(),
                                               row_k_.data, key());
  tiles::transpose(key(), value(), d_state_.data, value(), transposed_.data, key());
  tiles::product<Sum::Full, Into::Set, T>(rows, key(), value(), {residual_.data, value(), 1}, transposed_.data, key(),
                                          state_k_.data, key());
  multiply_in_place(rows * key(), in_.decay.to_last.data, state_k_.data);
}

// The gate gradient that every row of the chunk shares, through Diag(e^{G_C}) S: row 1 of gate_.
template <class T>
void Backward<T>::gate_total() {
  for (int64_t c = 0; c < key(); ++c) {
    gate_.row(1)[c] = in_.decay.total.data[c] * tiles::dot(state_.row(c), d_state_.row(c), value());
  }
}

// dS = Diag(e^{G_C}) dS' + (Q e^G)^T dO - (beta K e^G)^T dR
template <class T>
void Backward<T>::state_gradient(int64_t rows) {
  scale_rows(key(), value(), in_.decay.total.data, d_state_.data);
  multiply_rows(rows * key(), in_.q.data, in_.decay.from_start.data, decayed_.data);
  tiles::product<Sum::Full, Into::Add, T>(key(), value(), rows, {decayed_.data, 1, key()}, d_o_.data, value(), d_state_.data,
                                          value());
  multiply_rows(rows * key(), in_.k.data, in_.decay.from_start.data, decayed_.data);
  scale_rows(rows, key(), in_.beta, decayed_.data);
  tiles::product<Sum::Full, Into::Subtract, T>(key(), value(), rows, {decayed_.data, 1, key()}, d_r_.data, value(),
                                               d_state_.data, value());
}

template <class T>
void Backward<T>::through_scores(const Chunk& chunk, KdaTiles diagonal) {
  add_score_rows(in_, d_a_, chunk.tiles(), diagonal, decayed_.data, row_q_);
  add_score_rows(in_, d_l_, chunk.tiles(), diagonal, decayed_.data, row_k_);
  scale_rows(chunk.padded_rows(), kKdaChunk, in_.beta, d_l_.data);
  score_columns(in_, d_a_, d_l_, chunk.tiles(), diagonal, decayed_.data, column_k_);
}

// dg_t gathers every decay factor that contains alpha_t: rows i >= t that carry e^{+G_i}, minus columns j >= t that carry
// e^{-G_j}, plus what leaves with the state. The last is summed from the front, over rows before t, instead of the chunk's
// total minus the rows from t on: nothing cancels.
template <class T>
void Backward<T>::write(const Gradients<T>& out, const Chunk& chunk, int64_t head, T scale) {
  const int64_t n = dims_.key_dim;
  T* suffix = gate_.row(0);
  T* leaving = gate_.row(1);
  std::fill_n(suffix, n, T{0});
  for (int64_t i = chunk.rows - 1; i >= 0; --i) {
    const int64_t token = chunk.first_token + i;
    const int64_t at = dims_.key_offset(token, head);
    const T beta = in_.beta[i];
    const T on_diagonal = d_a_.row(i)[i];
    for (int64_t c = 0; c < n; ++c) {
      const T q = in_.q.row(i)[c];
      const T k = in_.k.row(i)[c];
      const T from_row = beta * row_k_.row(i)[c];
      out.dq[at + c] = scale * (row_q_.row(i)[c] + on_diagonal * k) + T{0};
      out.dk[at + c] = ((from_row + column_k_.row(i)[c]) + (state_k_.row(i)[c] + on_diagonal * q)) + T{0};
      suffix[c] += q * row_q_.row(i)[c] + k * (from_row - column_k_.row(i)[c]);
      out.dg[at + c] = suffix[c];
    }
    out.dbeta[token * dims_.heads + head] =
        (tiles::dot(d_r_.row(i), in_.v.row(i), value()) + tiles::dot(in_.k.row(i), row_k_.row(i), key())) + T{0};
    T* dv = out.dv + dims_.value_offset(token, head);
    for (int64_t e = 0; e < dims_.value_dim; ++e) {
      dv[e] = beta * d_r_.row(i)[e] + T{0};
    }
  }
  for (int64_t i = 0; i < chunk.rows; ++i) {
    T* dg = out.dg + dims_.key_offset(chunk.first_token + i, head);
    for (int64_t c = 0; c < n; ++c) {
      dg[c] = (dg[c] + leaving[c]) + T{0};
      leaving[c] += in_.k.row(i)[c] * state_k_.row(i)[c];
    }
  }
}

}  // namespace

template <class T>
void backward_cpu(ExecContext& ctx, const KdaBackward& op, const Dims& dims) {
  const ProfileScope profile("KDA");
  const ArenaScope scope(ctx.scratch());
  Backward<T> backward(ctx.scratch(), dims);
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
  const Gradients<T> out{.d_o = op.d_o.data<T>(),
                         .dq = op.dq.data<T>(),
                         .dk = op.dk.data<T>(),
                         .dv = op.dv.data<T>(),
                         .dg = op.dg.data<T>(),
                         .dbeta = op.dbeta.data<T>()};
  for_each_document("kda_backward", op.cu_seqlens.data<int64_t>(), dims, [&](const Document& document) {
    for (int64_t head = 0; head < dims.heads; ++head) {
      const int64_t state_at = dims.state_offset(document.index, head);
      load_state(op.dfinal_state, state_at, dims, backward.d_state());
      for (int64_t c = document.chunks() - 1; c >= 0; --c) {
        const Chunk chunk = chunk_of(document, c);
        load_state(op.chunk_states, dims.state_offset(chunk.index, head), dims, backward.state());
        backward.chunk(tensors, out, chunk, head);
      }
      store_state(backward.d_state(), dims, op.dinitial_state, state_at);
    }
  });
}

template void backward_cpu<float>(ExecContext&, const KdaBackward&, const Dims&);
template void backward_cpu<double>(ExecContext&, const KdaBackward&, const Dims&);

}  // namespace longhaul::kda
