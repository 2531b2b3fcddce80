// The CPU versions behind attention.h, instantiated for float and double, and what they share: sizes, and the walk over
// documents in tiles of 64 queries by 64 keys. Tiles start at a document's first token, so a document's result does not
// depend on where it is packed.
#pragma once

#include <algorithm>

#include "base/cast.h"
#include "kernels/attention/attention.h"
#include "kernels/kda/panels.h"

namespace longhaul::attention {

inline constexpr int64_t kTileRows = 64;   // queries, and keys, of a tile
inline constexpr int64_t kColumnUnit = 16; // panel rows are padded to whole vectors

struct Dims {
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t documents = 0;

  [[nodiscard]] int64_t key_width() const { return round_up(key_dim, kColumnUnit); }
  [[nodiscard]] int64_t value_width() const { return round_up(value_dim, kColumnUnit); }
};

template <class T>
void forward_cpu(ExecContext& ctx, const AttentionForward& op, const Dims& dims);
template <class T>
void backward_cpu(ExecContext& ctx, const AttentionBackward& op, const Dims& dims);

// Rows of one head of a strided [tokens, heads, columns] tensor. Offsets are int64_t products.
template <class T>
struct HeadRows {
  T* data;
  int64_t stride;   // from token to token
  int64_t columns;

  HeadRows(const TensorView& view, int64_t head)
      : data(view.data<std::remove_const_t<T>>() + head * view.stride(1)), stride(view.stride(0)), columns(view.size(2)) {}
  [[nodiscard]] T* operator[](int64_t token) const { return data + token * stride; }
};

// Up to 64 consecutive tokens of a document.
struct Tile {
  int64_t first_token = 0;
  int64_t rows = 0;
};

[[nodiscard]] inline int64_t num_tiles(int64_t length) { return ceil_div(length, kTileRows); }
[[nodiscard]] inline Tile tile_of(int64_t first_token, int64_t length, int64_t index) {
  const int64_t start = index * kTileRows;
  return {first_token + start, std::min(kTileRows, length - start)};
}

// A tile as a [64, width] panel, zeros beside and below.
template <class T>
void load_tile(const HeadRows<const T>& from, const Tile& tile, kda::Panel<T> panel) {
  kda::load_panel(from[tile.first_token], from.stride, tile.rows, from.columns, kTileRows, panel);
}

}  // namespace longhaul::attention
