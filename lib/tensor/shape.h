// Sizes of up to four dimensions, row-major. Like all headers that operations on a GPU include, this one formats no
// messages: nvcc cannot compile fmt.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace longhaul {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  // At most kMaxRank sizes, none negative.
  Shape(std::initializer_list<int64_t> sizes);  // NOLINT: {tokens, hidden} reads as a shape

  [[nodiscard]] int rank() const noexcept { return rank_; }
  // Negative dims count from the end.
  [[nodiscard]] int64_t operator[](int dim) const noexcept { return sizes_[static_cast<size_t>(dim < 0 ? rank_ + dim : dim)]; }
  void set(int dim, int64_t size) noexcept { sizes_[static_cast<size_t>(dim)] = size; }
  void append(int64_t size);
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
