// See arena.h.
#include "device/arena.h"

#include <algorithm>
#include <utility>

#include "base/cast.h"
#include "base/error.h"

namespace longhaul {
namespace {
constexpr int64_t kAlignment = 256;
constexpr int64_t kSmallestChunk = int64_t{1} << 20;
}  // namespace

Arena Arena::measuring(Device device, std::string name) { return Arena(device, std::move(name), Measuring{}); }

Arena::Arena(Device device, std::string name, Measuring)
    : device_(device), name_(std::move(name)), measuring_(true), capacity_(std::numeric_limits<int64_t>::max()) {}

Arena::Arena(Device device, std::string name, int64_t capacity_bytes, Growth growth)
    : device_(device), name_(std::move(name)), growth_(growth) {
  const int64_t first = round_up(std::max<int64_t>(capacity_bytes, 0), kAlignment);
  chunks_.emplace_back(device_, first);
  capacity_ = first;
}

std::byte* Arena::take_bytes(std::string_view name, int64_t bytes) {
  LH_CHECK(bytes >= 0, "{}: {} bytes asked of arena {}", name, bytes, name_);
  const int64_t size = round_up(bytes, kAlignment);
  if (measuring_) {
    used_ += size;
    high_water_ = std::max(high_water_, used_);
    const auto same = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == name; });
    if (same == entries_.end()) {
      entries_.push_back({std::string(name), size});
    } else {
      same->bytes = std::max(same->bytes, size);
    }
    return nullptr;
  }
  while (used_in_chunk_ + size > chunks_[chunk_].bytes()) {
    if (chunk_ + 1 < chunks_.size()) {
      ++chunk_;
      used_in_chunk_ = 0;
      continue;
    }
    if (growth_ == Growth::Fixed) {
      throw OutOfMemoryError("arena {} holds {} bytes, {} are used, and {} needs {} more; this is more than was planned "
                             "before the first step",
                             name_, capacity_, used_, name, size);
    }
    chunks_.emplace_back(device_, std::max({size, capacity_, kSmallestChunk}));
    capacity_ += chunks_.back().bytes();
  }
  std::byte* result = chunks_[chunk_].data() + used_in_chunk_;
  used_in_chunk_ += size;
  used_ += size;
  high_water_ = std::max(high_water_, used_);
  return result;
}

void Arena::release(Mark mark) noexcept {
  chunk_ = mark.chunk;
  used_in_chunk_ = mark.used_in_chunk;
  used_ = mark.used;
}

}  // namespace longhaul
