// Decay factors of one chunk. Everything is a product of alpha = exp(g) over a run of rows, never the exponential of a
// difference of long sums: products keep their relative accuracy (about one rounding a factor) where sums of g around
// -300 have lost it, and cost one exponential an element.
//
// With tiles I > J, rows i in I and j in J, the decay from j to i is
//   E_ij = to_end[j] * (product of tile_decay over the tiles between) * first[I] * from_first[i],
// all factors <= 1. Row 0 of the tile of row i is the anchor: a row of the past, so that rounding never depends on the
// future. Inside a tile, E_ij = from_first[i] * inverse[j] with inverse = 1 / from_first up to e^75 at the bound
// g >= -5: in the range of float, and used by KdaTiles::Dense only.
#pragma once

#include "kernels/kda/elementwise.h"
#include "kernels/kda/panels.h"
#include "kernels/math/fast_math.h"

namespace longhaul::kda {

template <class T>
struct ChunkDecay {
  Panel<T> alpha;        // [64, key] exp(g)
  Panel<T> from_first;   // [64, key] product over (first row of the tile, this row]; exactly 1 in the first row
  Panel<T> inverse;      // [64, key] 1 / from_first; KdaTiles::Dense
  Panel<T> to_end;       // [64, key] product over (this row, last row of the tile]
  Panel<T> from_start;   // [64, key] e^{G_i}: product over [first row of the chunk, this row]
  Panel<T> to_last;      // [64, key] e^{G_C - G_i}: product over (this row, last row of the chunk]
  Panel<T> tile_total;   // [4, key] product over all rows of a tile
  Panel<T> running;      // [1, key] work
  Panel<T> total;        // [1, key] e^{G_C}

  ChunkDecay(Arena& arena, const Dims& dims)
      : alpha(take_panel<T>(arena, "kda.alpha", kKdaChunk, dims.key_width())),
        from_first(take_panel<T>(arena, "kda.from_first", kKdaChunk, dims.key_width())),
        inverse(take_panel<T>(arena, "kda.inverse", kKdaChunk, dims.key_width())),
        to_end(take_panel<T>(arena, "kda.to_end", kKdaChunk, dims.key_width())),
        from_start(take_panel<T>(arena, "kda.from_start", kKdaChunk, dims.key_width())),
        to_last(take_panel<T>(arena, "kda.to_last", kKdaChunk, dims.key_width())),
        tile_total(take_panel<T>(arena, "kda.tile_total", kKdaChunk / kKdaTile, dims.key_width())),
        running(take_panel<T>(arena, "kda.running", 1, dims.key_width())),
        total(take_panel<T>(arena, "kda.total", 1, dims.key_width())) {}

  [[nodiscard]] int64_t width() const { return alpha.width; }
  // [key] decay of the first row of a tile.
  [[nodiscard]] const T* first(int64_t tile) const { return alpha.row(tile * kKdaTile); }
  // [key] decay from the first row of a tile to its last.
  [[nodiscard]] const T* rest(int64_t tile) const { return from_first.row(tile * kKdaTile + kKdaTile - 1); }

  // g points at the chunk's first row, `stride` elements apart. Rows beyond the chunk and columns beyond key_dim get decay 1.
  void load(const T* g, int64_t stride, int64_t key_dim, const Chunk& chunk, KdaTiles diagonal);

 private:
  void fill_tile(int64_t tile, KdaTiles diagonal);
};

template <class T>
void ChunkDecay<T>::load(const T* g, int64_t stride, int64_t key_dim, const Chunk& chunk, KdaTiles diagonal) {
  for (int64_t i = 0; i < chunk.rows; ++i) {
    const T* source = g + i * stride;
    T* target = alpha.row(i);
    for (int64_t c = 0; c < key_dim; ++c) {
      target[c] = math::exp(source[c]);
    }
    std::fill(target + key_dim, target + width(), T{1});
  }
  std::fill(alpha.row(chunk.rows), alpha.row(chunk.padded_rows()), T{1});
  for (int64_t tile = 0; tile < chunk.tiles(); ++tile) {
    fill_tile(tile, diagonal);
  }
  // Across tiles: forwards for from_start, backwards for to_last. `running` is the decay of the tiles passed.
  const int64_t n = width();
  std::fill(running.data, running.data + n, T{1});
  for (int64_t tile = 0; tile < chunk.tiles(); ++tile) {
    for (int64_t c = 0; c < n; ++c) {
      running.data[c] *= first(tile)[c];
    }
    for (int64_t i = tile * kKdaTile; i < (tile + 1) * kKdaTile; ++i) {
      multiply_rows(n, running.data, from_first.row(i), from_start.row(i));
    }
    for (int64_t c = 0; c < n; ++c) {
      running.data[c] *= rest(tile)[c];
    }
  }
  std::copy_n(running.data, n, total.data);
  std::fill(running.data, running.data + n, T{1});
  for (int64_t tile = chunk.tiles() - 1; tile >= 0; --tile) {
    for (int64_t i = tile * kKdaTile; i < (tile + 1) * kKdaTile; ++i) {
      multiply_rows(n, running.data, to_end.row(i), to_last.row(i));
    }
    multiply_in_place(n, tile_total.row(tile), running.data);
  }
}

template <class T>
void ChunkDecay<T>::fill_tile(int64_t tile, KdaTiles diagonal) {
  const int64_t n = width();
  const int64_t begin = tile * kKdaTile;
  const int64_t end = begin + kKdaTile;
  std::fill_n(from_first.row(begin), n, T{1});
  for (int64_t i = begin + 1; i < end; ++i) {
    multiply_rows(n, from_first.row(i - 1), alpha.row(i), from_first.row(i));
  }
  multiply_rows(n, first(tile), rest(tile), tile_total.row(tile));
  std::fill_n(to_end.row(end - 1), n, T{1});
  for (int64_t i = end - 2; i >= begin; --i) {
    multiply_rows(n, to_end.row(i + 1), alpha.row(i + 1), to_end.row(i));
  }
  if (diagonal == KdaTiles::Dense) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t c = 0; c < n; ++c) {
        inverse.row(i)[c] = T{1} / from_first.row(i)[c];
      }
    }
  }
}

}  // namespace longhaul::kda
