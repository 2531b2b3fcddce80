// The body of the vector kernels: a block of rows by one panel is accumulated in registers. `Lanes` wraps the intrinsics of
// one instruction set and type; included by the files that are compiled for that set.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/products/row_kernel.h"
#include "kernels/products/row_product.h"

namespace longhaul::cpu {

template <class Lanes, int64_t Rows>
void multiply_block(const typename Lanes::Scalar* a, int64_t lda, const typename Lanes::Scalar* panel, int64_t k, typename Lanes::Scalar* sums) {
  constexpr int64_t kColumns = Lanes::kWidth * Lanes::kRegisters;
  for (int64_t column = 0; column < kPanelColumns; column += kColumns) {
    typename Lanes::Register sum[Rows][Lanes::kRegisters];
    for (auto& row : sum) {
      for (auto& one : row) {
        one = Lanes::zero();
      }
    }
    const typename Lanes::Scalar* b = panel + column;
    for (int64_t i = 0; i < k; ++i, b += kPanelColumns) {
      typename Lanes::Register right[Lanes::kRegisters];
      for (int64_t c = 0; c < Lanes::kRegisters; ++c) {
        right[c] = Lanes::load(b + c * Lanes::kWidth);
      }
      for (int64_t r = 0; r < Rows; ++r) {
        const typename Lanes::Register left = Lanes::broadcast(a + r * lda + i);
        for (int64_t c = 0; c < Lanes::kRegisters; ++c) {
          sum[r][c] = Lanes::fma(left, right[c], sum[r][c]);
        }
      }
    }
    for (int64_t r = 0; r < Rows; ++r) {
      for (int64_t c = 0; c < Lanes::kRegisters; ++c) {
        Lanes::store(sums + r * kPanelColumns + column + c * Lanes::kWidth, sum[r][c]);
      }
    }
  }
}

// Picks the block of exactly `rows` rows, 1 to MaxRows.
template <class Lanes, int64_t MaxRows>
void multiply_rows(int64_t rows, const typename Lanes::Scalar* a, int64_t lda, const typename Lanes::Scalar* panel, int64_t k,
                   typename Lanes::Scalar* sums) {
  [&]<int64_t... I>(std::integer_sequence<int64_t, I...>) {
    static_cast<void>(((rows == I + 1 && (multiply_block<Lanes, I + 1>(a, lda, panel, k, sums), true)) || ...));
  }(std::make_integer_sequence<int64_t, MaxRows>{});
}

}  // namespace longhaul::cpu
