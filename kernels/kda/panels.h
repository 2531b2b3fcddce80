// Panels: a chunk's rows of one tensor, copied to scratch as [64, width] with zeros beside and below the data, so that
// every product runs on full vectors and tiles. A chunk's panels stay in the second-level cache.
#pragma once

#include <algorithm>
#include <string_view>

#include "device/arena.h"
#include "kernels/kda/chunk_layout.h"

namespace longhaul::kda {

// Row-major scratch with a fixed row width; null while planning.
template <class T>
struct Panel {
  T* data = nullptr;
  int64_t width = 0;

  [[nodiscard]] T* row(int64_t i) const { return data + i * width; }
};

template <class T>
[[nodiscard]] Panel<T> take_panel(Arena& arena, std::string_view name, int64_t rows, int64_t width) {
  return {reinterpret_cast<T*>(arena.take_bytes(name, rows * width * narrow<int64_t>(sizeof(T)))), width};
}

// Copies `rows` rows of `columns` elements from strided memory and fills the rest of [padded_rows, panel.width] with zeros.
template <class T>
void load_panel(const T* from, int64_t stride, int64_t rows, int64_t columns, int64_t padded_rows, Panel<T> panel) {
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(from + i * stride, columns, panel.row(i));
    std::fill(panel.row(i) + columns, panel.row(i) + panel.width, T{0});
  }
  std::fill(panel.row(rows), panel.row(padded_rows), T{0});
}

// Writes rows back. Adding +0 turns -0 into +0: whether a sum that underflowed is -0 or +0 could otherwise depend on
// the sign of later zeros, that is on the future.
template <class T>
void store_panel(Panel<T> panel, int64_t rows, int64_t columns, T* to, int64_t stride) {
  for (int64_t i = 0; i < rows; ++i) {
    const T* source = panel.row(i);
    T* target = to + i * stride;
    for (int64_t c = 0; c < columns; ++c) {
      target[c] = source[c] + T{0};
    }
  }
}

}  // namespace longhaul::kda
