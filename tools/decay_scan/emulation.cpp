// See emulation.h. The formulas are those of kernels/kda/README.md (Kimi Linear, arXiv:2510.26692, eq. 6-9); plain code, so that
// it does not share mistakes with the kernels.
#include "tools/decay_scan/emulation.h"

#include <algorithm>
#include <cmath>

#include "kernels/kda/flush_denormals.h"
#include "tools/decay_scan/chunk_scores.h"

namespace longhaul::decay {
namespace {

// Where one head of one document is, and how its rows are read and written.
template <class T>
class HeadRows {
 public:
  HeadRows(const ScanProblem& p, int64_t head) : problem_(p), head_(head) {}

  [[nodiscard]] Matrix<T> read(const Tensor& tensor, int64_t first, int64_t count) const {
    const int64_t width = tensor.view().rank() == 3 ? tensor.view().size(2) : 1;
    Matrix<T> m(count, width);
    for (int64_t i = 0; i < count; ++i) {
      const double* from = tensor.values<double>().data() + ((first + i) * problem_.heads + head_) * width;
      std::transform(from, from + width, m.row(i), [](double x) { return static_cast<T>(x); });
    }
    return m;
  }
  void write(const Matrix<T>& m, int64_t first, std::vector<double>& to) const {
    for (int64_t i = 0; i < m.rows; ++i) {
      std::copy_n(m.row(i), m.columns, to.begin() + ((first + i) * problem_.heads + head_) * m.columns);
    }
  }
  // States are [documents, heads, key_dim, value_dim].
  [[nodiscard]] Matrix<T> read_state(const Tensor& tensor, int64_t document) const {
    Matrix<T> m(problem_.key_dim, problem_.value_dim);
    const double* from = tensor.values<double>().data() + state_offset(document);
    std::transform(from, from + m.values.size(), m.values.begin(), [](double x) { return static_cast<T>(x); });
    return m;
  }
  void write_state(const Matrix<T>& m, int64_t document, std::vector<double>& to) const {
    std::copy(m.values.begin(), m.values.end(), to.begin() + state_offset(document));
  }

 private:
  [[nodiscard]] int64_t state_offset(int64_t document) const {
    return (document * problem_.heads + head_) * problem_.key_dim * problem_.value_dim;
  }

  const ScanProblem& problem_;
  int64_t head_;
};

// (I + L) x = b, by substitution; L is strictly lower.
template <class T>
void solve(const Matrix<T>& l, Matrix<T>& b) {
  for (int64_t i = 0; i < b.rows; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      for (int64_t e = 0; e < b.columns; ++e) {
        b(i, e) -= l(i, j) * b(j, e);
      }
    }
  }
}

template <class T>
void solve_transposed(const Matrix<T>& l, Matrix<T>& b) {
  for (int64_t j = b.rows - 1; j >= 0; --j) {
    for (int64_t i = j + 1; i < b.rows; ++i) {
      for (int64_t e = 0; e < b.columns; ++e) {
        b(j, e) -= l(i, j) * b(i, e);
      }
    }
  }
}

template <class T>
Matrix<T> times_number(Matrix<T> m, T factor) {
  std::for_each(m.values.begin(), m.values.end(), [factor](T& x) { x *= factor; });
  return m;
}

template <class T>
T dot(const T* a, const T* b, int64_t n) {
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

// What both passes know about a chunk before they look at the state.
template <class T>
struct Chunk {
  int64_t first = 0;  // token
  Matrix<T> q, k;        // [rows, key_dim]
  Matrix<T> v;           // [rows, value_dim]
  std::vector<T> beta;
  ChunkDecay<T> decay;
  Scores<T> scores;      // A without the scale

  Chunk(const ScanProblem& p, const HeadRows<T>& head, const TensorCore<T>& core, int64_t tile, int64_t first_token, int64_t rows)
      : first(first_token),
        q(head.read(p.q, first, rows)),
        k(head.read(p.k, first, rows)),
        v(head.read(p.v, first, rows)),
        beta(head.read(p.beta, first, rows).values),
        decay(head.read(p.g, first, rows), tile),
        scores(make_scores(core, decay, q, k, beta)) {}

  // (I + L)^-1 diag(beta) (V - (K e^G) S), [rows, value_dim]
  [[nodiscard]] Matrix<T> residual(const TensorCore<T>& core, const Matrix<T>& state) const {
    Matrix<T> r = v;
    add_to(r, times_number(core.product(times(k, decay.from_start), state), T{-1}));
    r = times_rows(r, beta);
    solve(scores.l, r);
    return r;
  }
};

template <class T>
struct Gradients {
  Matrix<T> dq, dk, dv, dg, dbeta;
};

template <class T>
class Head {
 public:
  Head(const ScanProblem& p, int64_t head, int64_t tile, Precision precision, Outputs& out)
      : p_(p), rows_(p, head), core_(precision), tile_(tile), chunk_rows_(std::max(kEmulatedChunk, tile)), out_(out) {}

  void document(int64_t index, int64_t first, int64_t length) {
    std::vector<Matrix<T>> states{rows_.read_state(p_.initial_state, index)};  // before each chunk, and behind the last
    for (int64_t at = 0; at < length; at += chunk_rows_) {
      states.push_back(forward(chunk_at(first, at, length), states.back()));
    }
    rows_.write_state(states.back(), index, get(out_, Output::FinalState));
    Matrix<T> d_state = rows_.read_state(p_.dfinal_state, index);
    for (int64_t c = std::ssize(states) - 2; c >= 0; --c) {
      backward(chunk_at(first, c * chunk_rows_, length), states[static_cast<size_t>(c)], d_state);
    }
    rows_.write_state(d_state, index, get(out_, Output::DInitialState));
  }

 private:
  [[nodiscard]] Chunk<T> chunk_at(int64_t first, int64_t at, int64_t length) const {
    return {p_, rows_, core_, tile_, first + at, std::min(chunk_rows_, length - at)};
  }
  [[nodiscard]] T scale() const { return static_cast<T>(p_.scale); }

  // Returns the next state.
  Matrix<T> forward(const Chunk<T>& c, const Matrix<T>& state) {
    const Matrix<T> vt = c.residual(core_, state);
    Matrix<T> o = core_.product(times(c.q, c.decay.from_start), state);
    add_to(o, core_.product(c.scores.a, vt));
    rows_.write(times_number(o, scale()), c.first, get(out_, Output::O));
    Matrix<T> next = times_rows(state, c.decay.total);
    add_to(next, core_.product(transposed(times(c.k, c.decay.to_last)), vt));
    return next;
  }

  // d_state: of the state behind the chunk, then of the one before it.
  void backward(const Chunk<T>& c, const Matrix<T>& state, Matrix<T>& d_state) {
    const Matrix<T> d_o = times_number(rows_.read(p_.d_o, c.first, c.q.rows), scale());  // with q not scaled, its gradient is
    const Matrix<T> vt = c.residual(core_, state);
    Matrix<T> d_r = core_.product(transposed(c.scores.a), d_o);
    add_to(d_r, core_.product(times(c.k, c.decay.to_last), d_state));
    solve_transposed(c.scores.l, d_r);
    const Matrix<T> vt_t = transposed(vt);
    const Matrix<T> d_a = core_.product(d_o, vt_t), d_l = times_number(core_.product(d_r, vt_t), T{-1});
    ScoreGradients<T> through = make_score_gradients(core_, c.decay, c.scores, d_a, d_l, c.beta);
    add_to(through.row_q, times(core_.product(d_o, transposed(state)), c.decay.from_start));
    add_to(through.row_k, times_number(times(core_.product(d_r, transposed(state)), c.decay.from_start), T{-1}));
    const Matrix<T> leaving = times(core_.product(vt, transposed(d_state)), c.decay.to_last);
    write(c, combine(c, through, leaving, d_a, d_r, state, d_state));
    d_state = times_rows(d_state, c.decay.total);
    add_to(d_state, core_.product(transposed(times(c.q, c.decay.from_start)), d_o));
    add_to(d_state, times_number(core_.product(transposed(times_rows(times(c.k, c.decay.from_start), c.beta)), d_r), T{-1}));
  }

  // `leaving` is the gradient of k through the state behind the chunk.
  static Gradients<T> combine(const Chunk<T>& c, const ScoreGradients<T>& through, const Matrix<T>& leaving, const Matrix<T>& d_a, const Matrix<T>& d_r,
                           const Matrix<T>& state, const Matrix<T>& d_state) {
    const int64_t rows = c.q.rows, keys = c.q.columns, values = c.v.columns;
    Gradients<T> g{.dq = through.row_q, .dk = Matrix<T>(rows, keys), .dv = times_rows(d_r, c.beta), .dg = Matrix<T>(rows, keys), .dbeta = Matrix<T>(rows, 1)};
    std::vector<T> suffix(static_cast<size_t>(keys));
    for (int64_t i = rows - 1; i >= 0; --i) {
      for (int64_t j = 0; j < keys; ++j) {
        const T row_k = c.beta[static_cast<size_t>(i)] * through.row_k(i, j), column = through.column_k(i, j);
        g.dq(i, j) += d_a(i, i) * c.k(i, j);
        g.dk(i, j) = row_k + column + leaving(i, j) + d_a(i, i) * c.q(i, j);
        suffix[static_cast<size_t>(j)] += c.q(i, j) * through.row_q(i, j) + c.k(i, j) * (row_k - column);
        g.dg(i, j) = suffix[static_cast<size_t>(j)];
      }
      g.dbeta(i, 0) = dot(d_r.row(i), c.v.row(i), values) + dot(c.k.row(i), through.row_k.row(i), keys);
    }
    for (int64_t j = 0; j < keys; ++j) {
      T sum = c.decay.total[static_cast<size_t>(j)] * dot(state.row(j), d_state.row(j), values);
      for (int64_t i = 0; i < rows; ++i) {
        g.dg(i, j) += sum;
        sum += c.k(i, j) * leaving(i, j);
      }
    }
    return g;
  }

  void write(const Chunk<T>& c, const Gradients<T>& g) {
    rows_.write(g.dq, c.first, get(out_, Output::DQ));
    rows_.write(g.dk, c.first, get(out_, Output::DK));
    rows_.write(g.dv, c.first, get(out_, Output::DV));
    rows_.write(g.dg, c.first, get(out_, Output::DG));
    rows_.write(g.dbeta, c.first, get(out_, Output::DBeta));
  }

  const ScanProblem& p_;
  HeadRows<T> rows_;
  TensorCore<T> core_;
  int64_t tile_;
  int64_t chunk_rows_;
  Outputs& out_;
};

template <class T>
Outputs outputs_in(const ScanProblem& p, int64_t tile, Precision precision) {
  LH_CHECK(tile > 0 && std::max(kEmulatedChunk, tile) % tile == 0, "tiles of {} rows do not fill chunks of {}", tile, kEmulatedChunk);
  const tiles::FlushDenormals flush;  // as the kernels do
  Outputs out;
  const auto size = [&](Output output, const Tensor& like) { get(out, output).resize(like.values<double>().size()); };
  size(Output::O, p.v);
  size(Output::FinalState, p.initial_state);
  size(Output::DQ, p.q);
  size(Output::DK, p.k);
  size(Output::DV, p.v);
  size(Output::DG, p.g);
  size(Output::DBeta, p.beta);
  size(Output::DInitialState, p.initial_state);
  for (int64_t head = 0; head < p.heads; ++head) {
    Head<T> walk(p, head, tile, precision, out);
    int64_t first = 0;
    for (int64_t document = 0; document < p.documents(); ++document) {
      const int64_t length = p.lengths[static_cast<size_t>(document)];
      walk.document(document, first, length);
      first += length;
    }
  }
  return out;
}

}  // namespace

Outputs emulated_outputs(const ScanProblem& p, int64_t tile, Precision precision, ExponentRange range) {
  return range == ExponentRange::Limited ? outputs_in<float>(p, tile, precision) : outputs_in<double>(p, tile, precision);
}

}  // namespace longhaul::decay
