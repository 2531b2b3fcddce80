// Sizes of up to four dimensions, row-major.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/error.h"

namespace longhaul {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) {  // NOLINT: {tokens, hidden} reads as a shape
    LH_CHECK(sizes.size() <= kMaxRank, "a tensor has at most {} dimensions, got {}", kMaxRank, sizes.size());
    for (const int64_t size : sizes) {
      LH_CHECK(size >= 0, "a dimension cannot be {}", size);
      sizes_[static_cast<size_t>(rank_++)] = size;
    }
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  // Negative dims count from the end.
  [[nodiscard]] int64_t operator[](int dim) const noexcept { return sizes_[static_cast<size_t>(dim < 0 ? rank_ + dim : dim)]; }
  void set(int dim, int64_t size) noexcept { sizes_[static_cast<size_t>(dim)] = size; }
  void append(int64_t size) {
    LH_CHECK(rank_ < kMaxRank, "a tensor has at most {} dimensions", kMaxRank);
    sizes_[static_cast<size_t>(rank_++)] = size;
  }
  [[nodiscard]] int64_t numel() const noexcept {
    int64_t n = 1;
    for (int d = 0; d < rank_; ++d) {
      n *= sizes_[static_cast<size_t>(d)];
    }
    return n;
  }
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

}  // namespace longhaul
