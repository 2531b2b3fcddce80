// Elementwise operations on rows of panels: the scalings between products. Plain loops over whole rows; the compiler
// vectorises them, and each element is rounded on its own.
#pragma once

#include <cstdint>

namespace longhaul::kda {

// to = a * b
template <class T>
void multiply_rows(int64_t n, const T* a, const T* b, T* __restrict to) {
  for (int64_t c = 0; c < n; ++c) {
    to[c] = a[c] * b[c];
  }
}

// to *= factors
template <class T>
void multiply_in_place(int64_t n, const T* factors, T* __restrict to) {
  for (int64_t c = 0; c < n; ++c) {
    to[c] *= factors[c];
  }
}

// to += factor * from
template <class T>
void add_scaled(int64_t n, T factor, const T* from, T* __restrict to) {
  for (int64_t c = 0; c < n; ++c) {
    to[c] += factor * from[c];
  }
}

// Every row of [rows, width] times the vector [width].
template <class T>
void scale_columns(int64_t rows, int64_t width, const T* factors, T* __restrict panel) {
  for (int64_t i = 0; i < rows; ++i) {
    T* row = panel + i * width;
    for (int64_t c = 0; c < width; ++c) {
      row[c] *= factors[c];
    }
  }
}

// Every row times a number of its own.
template <class T>
void scale_rows(int64_t rows, int64_t width, const T* factors, T* __restrict panel) {
  for (int64_t i = 0; i < rows; ++i) {
    T* row = panel + i * width;
    for (int64_t c = 0; c < width; ++c) {
      row[c] *= factors[i];
    }
  }
}

}  // namespace longhaul::kda
