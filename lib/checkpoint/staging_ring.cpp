// See staging_ring.h.
#include "checkpoint/staging_ring.h"

#include <sys/mman.h>

#include <algorithm>

namespace longhaul {

namespace {
constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = 2 << 20;
}  // namespace

// In large pages where the kernel has them: the first save would spend more time on the faults of small ones than on copying.
void StagingRing::allocate() {
  memory_ = Tensor(DType::U8, {capacity_ + kHugePage});
  const auto address = reinterpret_cast<uintptr_t>(memory_.view().raw());  // NOLINT: to round it up
  begin_ = static_cast<std::byte*>(memory_.view().raw()) + (round_up(narrow<int64_t>(address), kHugePage) - narrow<int64_t>(address));
  static_cast<void>(::madvise(begin_, static_cast<size_t>(capacity_), MADV_HUGEPAGE));  // a hint
}

std::optional<int64_t> StagingRing::take(int64_t bytes) {
  if (!memory_.view().is_present()) {
    allocate();
  }
  const int64_t size = round_up(std::max<int64_t>(bytes, 1), kAlignment);
  LH_CHECK(size <= capacity_, "{} bytes do not fit into a staging buffer of {}", bytes, capacity_);
  int64_t begin = 0;
  if (!taken_.empty()) {
    const int64_t head = taken_.front().begin;
    const int64_t tail = taken_.back().end;
    const bool is_wrapped = taken_.back().begin < head;
    if (tail + size <= (is_wrapped ? head : capacity_)) {
      begin = tail;
    } else if (is_wrapped || size > head) {
      return std::nullopt;
    }
  }
  taken_.push_back({.begin = begin, .end = begin + size});
  return begin;
}

void StagingRing::give_back(int64_t offset) {
  const auto it = std::find_if(taken_.begin(), taken_.end(), [&](const Range& range) { return range.begin == offset && !range.is_free; });
  LH_CHECK(it != taken_.end(), "nothing was taken at {}", offset);
  it->is_free = true;
  while (!taken_.empty() && taken_.front().is_free) {
    taken_.pop_front();
  }
}

int64_t StagingRing::used() const noexcept {
  int64_t sum = 0;
  for (const Range& range : taken_) {
    sum += range.is_free ? 0 : range.end - range.begin;
  }
  return sum;
}

}  // namespace longhaul
