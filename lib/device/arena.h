// A stack allocator with names and a high-water mark: all memory of a training step comes from arenas that were sized
// before step 1. The same code that takes memory also plans it: a measuring arena hands out no memory and only counts,
// so a plan is the step itself run without arithmetic, and cannot disagree with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "device/buffer.h"

namespace longhaul {

class Arena {
 public:
  enum class Growth : uint8_t {
    Fixed,    // more than the capacity is an OutOfMemoryError
    Chunked,  // adds a chunk when full; for tests, tools, and what routing makes ragged
  };
  struct Mark {
    size_t chunk = 0;
    int64_t used_in_chunk = 0;
    int64_t used = 0;
  };
  struct Entry {
    std::string name;
    int64_t bytes = 0;
  };

  // Counts only; take_bytes returns nullptr.
  [[nodiscard]] static Arena measuring(Device device, std::string name);
  Arena(Device device, std::string name, int64_t capacity_bytes, Growth growth = Growth::Fixed);

  // `bytes` rounded up to 256. Throws OutOfMemoryError naming the arena, the request and the capacity.
  [[nodiscard]] std::byte* take_bytes(std::string_view name, int64_t bytes);

  [[nodiscard]] Mark mark() const noexcept { return {chunk_, used_in_chunk_, used_}; }
  // Frees everything taken since the mark.
  void release(Mark mark) noexcept;

  [[nodiscard]] bool is_measuring() const noexcept { return measuring_; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] int64_t used_bytes() const noexcept { return used_; }
  [[nodiscard]] int64_t high_water_bytes() const noexcept { return high_water_; }
  [[nodiscard]] int64_t capacity_bytes() const noexcept { return capacity_; }
  // What a measuring arena has seen, by name in order of first use, largest single take each.
  [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }

 private:
  struct Measuring {};
  Arena(Device device, std::string name, Measuring);

  Device device_;
  std::string name_;
  bool measuring_ = false;
  Growth growth_ = Growth::Fixed;
  std::vector<Buffer> chunks_;
  size_t chunk_ = 0;           // index of the chunk in use
  int64_t used_in_chunk_ = 0;  // bytes used of that chunk
  int64_t used_ = 0;
  int64_t high_water_ = 0;
  int64_t capacity_ = 0;
  std::vector<Entry> entries_;
};

// Frees at the end of a scope what was taken inside it.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) noexcept : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.release(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace longhaul
