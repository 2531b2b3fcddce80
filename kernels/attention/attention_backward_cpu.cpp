// Backward of blockwise causal attention on the CPU. With P = exp(scores - lse) recomputed tile by tile and
// delta_i = <dO_i, o_i>:
//   dV = P^T dO      dS = P * (dO V^T - delta)      dQ = scale dS K      dK = scale dS^T Q
// Query tiles are the outer loop; dQ of a tile is summed in scratch, dK and dV of a key tile in their output, over query
// tiles in ascending order. Score tiles are transposed, [keys, queries], as in forward.
#include "base/profile.h"
#include "kernels/attention/attention_cpu.h"
#include "kernels/kda/documents.h"
#include "kernels/kda/flush_denormals.h"
#include "kernels/kda/tile_products.h"
#include "kernels/math/fast_math.h"

namespace longhaul::attention {
namespace {

using kda::Panel;
using kda::take_panel;
using tiles::Into;
using tiles::Sum;

// The tensors of one head.
template <class T>
struct Head {
  HeadRows<const T> q, k, v, o, d_o;
  HeadRows<T> dq, dk, dv;
  const T* lse;        // of the head's first token
  int64_t lse_stride;
  T scale;

  Head(const AttentionBackward& op, int64_t head)
      : q(op.q, head),
        k(op.k, head),
        v(op.v, head),
        o(op.o, head),
        d_o(op.d_o, head),
        dq(op.dq, head),
        dk(op.dk, head),
        dv(op.dv, head),
        lse(op.lse.data<T>() + head),
        lse_stride(op.lse.stride(0)),
        scale(static_cast<T>(op.scale)) {}
};

template <class T>
class Backward {
 public:
  Backward(Arena& arena, const Dims& dims)
      : q_(take_panel<T>(arena, "attention.q", kTileRows, dims.key_width())),
        q_t_(take_panel<T>(arena, "attention.q_t", dims.key_width(), kTileRows)),
        k_(take_panel<T>(arena, "attention.k", kTileRows, dims.key_width())),
        v_(take_panel<T>(arena, "attention.v", kTileRows, dims.value_width())),
        d_o_(take_panel<T>(arena, "attention.d_o", kTileRows, dims.value_width())),
        d_o_t_(take_panel<T>(arena, "attention.d_o_t", dims.value_width(), kTileRows)),
        o_(take_panel<T>(arena, "attention.o", kTileRows, dims.value_width())),
        p_(take_panel<T>(arena, "attention.p", kTileRows, kTileRows)),
        d_s_(take_panel<T>(arena, "attention.d_s", kTileRows, kTileRows)),
        dq_(take_panel<T>(arena, "attention.dq", kTileRows, dims.key_width())),
        partial_(take_panel<T>(arena, "attention.partial", kTileRows, std::max(dims.key_width(), dims.value_width()))),
        statistics_(take_panel<T>(arena, "attention.statistics", 2, kTileRows)) {}

  void query_tile(const Head<T>& head, int64_t first_token, int64_t length, int64_t index) {
    const Tile queries = tile_of(first_token, length, index);
    load_queries(head, queries);
    for (int64_t j = 0; j < index; ++j) {
      const Tile keys = tile_of(first_token, length, j);
      recompute(head, keys);
      add_products<Sum::Full, Sum::Full>(head, keys);
    }
    recompute(head, queries);
    add_products<Sum::UpToRow, Sum::FromRow>(head, queries);
    for (int64_t i = 0; i < queries.rows; ++i) {
      T* to = head.dq[queries.first_token + i];
      for (int64_t c = 0; c < head.dq.columns; ++c) {
        to[c] = head.scale * dq_.row(i)[c] + T{0};
      }
    }
  }

 private:
  void load_queries(const Head<T>& head, const Tile& queries);
  // P^T and dS^T against one key tile. Above the diagonal they hold what is never read.
  void recompute(const Head<T>& head, const Tile& keys);
  // of_query: the keys that a query meets; of_key: the queries that meet a key.
  template <Sum of_query, Sum of_key>
  void add_products(const Head<T>& head, const Tile& keys);

  [[nodiscard]] T* lse() const { return statistics_.row(0); }
  [[nodiscard]] T* delta() const { return statistics_.row(1); }

  Panel<T> q_;           // [64, key] scale * q
  Panel<T> q_t_;         // [key, 64]
  Panel<T> k_;           // [64, key]
  Panel<T> v_;           // [64, value]
  Panel<T> d_o_;         // [64, value]
  Panel<T> d_o_t_;       // [value, 64]
  Panel<T> o_;           // [64, value]
  Panel<T> p_;           // [64 keys, 64 queries]
  Panel<T> d_s_;         // [64 keys, 64 queries]
  Panel<T> dq_;          // [64, key] without scale
  Panel<T> partial_;     // [64, key or value]
  Panel<T> statistics_;  // [2, 64]
};

template <class T>
void Backward<T>::load_queries(const Head<T>& head, const Tile& queries) {
  load_tile(head.q, queries, q_);
  load_tile(head.d_o, queries, d_o_);
  load_tile(head.o, queries, o_);
  for (int64_t c = 0; c < kTileRows * q_.width; ++c) {
    q_.data[c] *= head.scale;
  }
  tiles::transpose(kTileRows, q_.width, q_.data, q_.width, q_t_.data, kTileRows);
  tiles::transpose(kTileRows, d_o_.width, d_o_.data, d_o_.width, d_o_t_.data, kTileRows);
  for (int64_t i = 0; i < kTileRows; ++i) {
    lse()[i] = i < queries.rows ? head.lse[(queries.first_token + i) * head.lse_stride] : T{0};
    delta()[i] = tiles::dot(d_o_.row(i), o_.row(i), o_.width);
  }
  std::fill_n(dq_.data, kTileRows * dq_.width, T{0});
}

template <class T>
void Backward<T>::recompute(const Head<T>& head, const Tile& keys) {
  load_tile(head.k, keys, k_);
  load_tile(head.v, keys, v_);
  tiles::product<Sum::Full, Into::Set, T>(kTileRows, kTileRows, k_.width, {k_.data, k_.width, 1}, q_t_.data, kTileRows,
                                          p_.data, kTileRows);
  tiles::product<Sum::Full, Into::Set, T>(kTileRows, kTileRows, v_.width, {v_.data, v_.width, 1}, d_o_t_.data, kTileRows,
                                          d_s_.data, kTileRows);
  for (int64_t j = 0; j < kTileRows; ++j) {
    T* p = p_.row(j);
    T* d_s = d_s_.row(j);
    for (int64_t i = 0; i < kTileRows; ++i) {
      p[i] = math::exp(p[i] - lse()[i]);
      d_s[i] = p[i] * (d_s[i] - delta()[i]);
    }
  }
}

template <class T>
void add_rows(Panel<T> panel, const Tile& tile, const HeadRows<T>& to) {
  for (int64_t i = 0; i < tile.rows; ++i) {
    T* row = to[tile.first_token + i];
    for (int64_t c = 0; c < to.columns; ++c) {
      row[c] += panel.row(i)[c];
    }
  }
}

template <class T>
template <Sum of_query, Sum of_key>
void Backward<T>::add_products(const Head<T>& head, const Tile& keys) {
  tiles::product<of_query, Into::Add, T>(kTileRows, dq_.width, kTileRows, {d_s_.data, 1, kTileRows}, k_.data, k_.width,
                                         dq_.data, dq_.width);
  const Panel<T> dk{partial_.data, q_.width};
  tiles::product<of_key, Into::Set, T>(kTileRows, dk.width, kTileRows, {d_s_.data, kTileRows, 1}, q_.data, q_.width,
                                       dk.data, dk.width);
  add_rows(dk, keys, head.dk);
  const Panel<T> dv{partial_.data, d_o_.width};
  tiles::product<of_key, Into::Set, T>(kTileRows, dv.width, kTileRows, {p_.data, kTileRows, 1}, d_o_.data, d_o_.width,
                                       dv.data, dv.width);
  add_rows(dv, keys, head.dv);
}

template <class T>
void fill_zero(const HeadRows<T>& rows, int64_t tokens) {
  for (int64_t t = 0; t < tokens; ++t) {
    std::fill_n(rows[t], rows.columns, T{0});
  }
}

}  // namespace

template <class T>
void backward_cpu(ExecContext& ctx, const AttentionBackward& op, const Dims& dims) {
  const ProfileScope profile("attention");
  const ArenaScope scope(ctx.scratch());
  Backward<T> backward(ctx.scratch(), dims);
  if (ctx.is_planning()) {
    return;
  }
  const tiles::FlushDenormals flush;  // probabilities far below the largest
  const auto* cu_seqlens = op.cu_seqlens.data<int64_t>();
  check_boundaries("attention_backward", cu_seqlens, dims.documents, dims.tokens);
  for (int64_t h = 0; h < dims.heads; ++h) {
    const Head<T> head(op, h);
    fill_zero(head.dk, dims.tokens);
    fill_zero(head.dv, dims.tokens);
    for (int64_t d = 0; d < dims.documents; ++d) {
      const int64_t length = cu_seqlens[d + 1] - cu_seqlens[d];
      for (int64_t i = 0; i < num_tiles(length); ++i) {
        backward.query_tile(head, cu_seqlens[d], length, i);
      }
    }
  }
}

template void backward_cpu<float>(ExecContext&, const AttentionBackward&, const Dims&);
template void backward_cpu<double>(ExecContext&, const AttentionBackward&, const Dims&);

}  // namespace longhaul::attention
