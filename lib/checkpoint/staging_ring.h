// Host memory of a fixed size in which the parts of a save wait for being written: taken in one order and, mostly, given
// back in the same, so that the memory is a ring. Its pages are touched only as far as they are needed, and kept for the
// next save. Not thread-safe: AsyncSaver locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "tensor/tensor.h"

namespace longhaul {

class StagingRing {
 public:
  // The memory is asked for with the first take.
  explicit StagingRing(int64_t capacity) : capacity_(capacity) {}

  // `bytes` consecutive bytes, aligned for any element; nothing where no such room is free now.
  [[nodiscard]] std::optional<int64_t> take(int64_t bytes);
  // What take returned.
  void give_back(int64_t offset);

  [[nodiscard]] std::byte* at(int64_t offset) noexcept { return begin_ + offset; }
  [[nodiscard]] int64_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] int64_t used() const noexcept;
  void clear() { taken_.clear(); }

 private:
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
    bool is_free = false;
  };

  void allocate();

  int64_t capacity_;
  Tensor memory_;
  std::byte* begin_ = nullptr;  // in memory_
  std::deque<Range> taken_;  // oldest first
};

}  // namespace longhaul
