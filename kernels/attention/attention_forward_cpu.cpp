// Blockwise causal attention with online softmax on the CPU. Scores are kept transposed, [keys, queries]: the largest score
// and the sum of a query then run down a column, so every loop is a vector loop over queries and nothing is summed across
// lanes. Each query meets the key tiles in ascending order, up to its own; a later token can change no bit of it.
#include <cmath>
#include <limits>

#include "base/profile.h"
#include "kernels/attention/attention_cpu.h"
#include "kernels/kda/documents.h"
#include "kernels/kda/elementwise.h"
#include "kernels/kda/flush_denormals.h"
#include "kernels/kda/tile_products.h"
#include "kernels/math/fast_math.h"

namespace longhaul::attention {
namespace {

using kda::Panel;
using kda::take_panel;
using tiles::Into;
using tiles::Sum;

enum class Position : uint8_t { BelowDiagonal, OnDiagonal };

template <class T>
class Forward {
 public:
  Forward(Arena& arena, const Dims& dims)
      : q_(take_panel<T>(arena, "attention.q", kTileRows, dims.key_width())),
        q_t_(take_panel<T>(arena, "attention.q_t", dims.key_width(), kTileRows)),
        k_(take_panel<T>(arena, "attention.k", kTileRows, dims.key_width())),
        v_(take_panel<T>(arena, "attention.v", kTileRows, dims.value_width())),
        scores_(take_panel<T>(arena, "attention.scores", kTileRows, kTileRows)),
        o_(take_panel<T>(arena, "attention.o", kTileRows, dims.value_width())),
        statistics_(take_panel<T>(arena, "attention.statistics", 4, kTileRows)) {}

  // One tile of queries against the key tiles up to it.
  void query_tile(const HeadRows<const T>& q, const HeadRows<const T>& k, const HeadRows<const T>& v, T scale,
                  int64_t first_token, int64_t length, int64_t index) {
    load_tile(q, tile_of(first_token, length, index), q_);
    for (int64_t c = 0; c < kTileRows * q_.width; ++c) {
      q_.data[c] *= scale;
    }
    tiles::transpose(kTileRows, q_.width, q_.data, q_.width, q_t_.data, kTileRows);
    std::fill_n(largest(), kTileRows, -std::numeric_limits<T>::infinity());
    std::fill_n(sum(), kTileRows, T{0});
    std::fill_n(o_.data, kTileRows * o_.width, T{0});
    for (int64_t j = 0; j <= index; ++j) {
      const Tile keys = tile_of(first_token, length, j);
      load_tile(k, keys, k_);
      load_tile(v, keys, v_);
      tiles::product<Sum::Full, Into::Set, T>(kTileRows, kTileRows, k_.width, {k_.data, k_.width, 1}, q_t_.data, kTileRows,
                                              scores_.data, kTileRows);
      if (j < index) {
        softmax(Position::BelowDiagonal);
        tiles::product<Sum::Full, Into::Add, T>(kTileRows, o_.width, kTileRows, {scores_.data, 1, kTileRows}, v_.data,
                                                v_.width, o_.data, o_.width);
      } else {
        softmax(Position::OnDiagonal);
        tiles::product<Sum::UpToRow, Into::Add, T>(kTileRows, o_.width, kTileRows, {scores_.data, 1, kTileRows}, v_.data,
                                                   v_.width, o_.data, o_.width);
      }
    }
  }

  void write(const Tile& tile, const HeadRows<T>& o, T* lse, int64_t lse_stride) {
    for (int64_t i = 0; i < tile.rows; ++i) {
      const T* row = o_.row(i);
      T* to = o[tile.first_token + i];
      const T inverse = T{1} / sum()[i];
      for (int64_t c = 0; c < o.columns; ++c) {
        to[c] = row[c] * inverse + T{0};
      }
      lse[i * lse_stride] = largest()[i] + std::log(sum()[i]);
    }
  }

 private:
  // Turns scores into exp(score - largest so far) and rescales what earlier key tiles gave.
  void softmax(Position position);

  [[nodiscard]] T* largest() const { return statistics_.row(0); }
  [[nodiscard]] T* sum() const { return statistics_.row(1); }
  [[nodiscard]] T* next_largest() const { return statistics_.row(2); }
  [[nodiscard]] T* correction() const { return statistics_.row(3); }

  Panel<T> q_;           // [64, key] scale * q
  Panel<T> q_t_;         // [key, 64]
  Panel<T> k_;           // [64, key]
  Panel<T> v_;           // [64, value]
  Panel<T> scores_;      // [64 keys, 64 queries]
  Panel<T> o_;           // [64, value]
  Panel<T> statistics_;  // [4, 64]
};

template <class T>
void Forward<T>::softmax(Position position) {
  if (position == Position::OnDiagonal) {
    // Selected, not multiplied or added: a score of the future may be infinite or NaN.
    for (int64_t j = 0; j < kTileRows; ++j) {
      std::fill_n(scores_.row(j), j, -std::numeric_limits<T>::infinity());
    }
  }
  T* __restrict next = next_largest();
  T* __restrict total = sum();
  std::copy_n(largest(), kTileRows, next);
  for (int64_t j = 0; j < kTileRows; ++j) {
    const T* row = scores_.row(j);
#pragma omp simd
    for (int64_t i = 0; i < kTileRows; ++i) {
      next[i] = row[i] > next[i] ? row[i] : next[i];
    }
  }
  // The first key tile finds largest = -inf, whose correction exp(-inf) is 0; next is finite, for key 0 is allowed.
  T* __restrict factor = correction();
  T* __restrict previous = largest();
#pragma omp simd
  for (int64_t i = 0; i < kTileRows; ++i) {
    factor[i] = math::exp(previous[i] - next[i]);
    total[i] *= factor[i];
    previous[i] = next[i];
  }
  for (int64_t j = 0; j < kTileRows; ++j) {
    T* __restrict row = scores_.row(j);
#pragma omp simd
    for (int64_t i = 0; i < kTileRows; ++i) {
      row[i] = math::exp(row[i] - next[i]);
      total[i] += row[i];
    }
  }
  kda::scale_rows(kTileRows, o_.width, correction(), o_.data);
}

}  // namespace

template <class T>
void forward_cpu(ExecContext& ctx, const AttentionForward& op, const Dims& dims) {
  const ProfileScope profile("attention");
  const ArenaScope scope(ctx.scratch());
  Forward<T> forward(ctx.scratch(), dims);
  if (ctx.is_planning()) {
    return;
  }
  const tiles::FlushDenormals flush;  // probabilities far below the largest
  const auto* cu_seqlens = op.cu_seqlens.data<int64_t>();
  check_boundaries("attention_forward", cu_seqlens, dims.documents, dims.tokens);
  for (int64_t d = 0; d < dims.documents; ++d) {
    const int64_t first = cu_seqlens[d];
    const int64_t length = cu_seqlens[d + 1] - first;
    for (int64_t head = 0; head < dims.heads; ++head) {
      const HeadRows<const T> q(op.q, head), k(op.k, head), v(op.v, head);
      const HeadRows<T> o(op.o, head);
      for (int64_t i = 0; i < num_tiles(length); ++i) {
        const Tile tile = tile_of(first, length, i);
        forward.query_tile(q, k, v, static_cast<T>(op.scale), first, length, i);
        forward.write(tile, o, op.lse.data<T>() + tile.first_token * dims.heads + head, dims.heads);
      }
    }
  }
}

template void forward_cpu<float>(ExecContext&, const AttentionForward&, const Dims&);
template void forward_cpu<double>(ExecContext&, const AttentionForward&, const Dims&);

}  // namespace longhaul::attention
