// Memory of the host that a GPU copies from and to directly: page-locked, so that copies run at the link's full speed and
// beside other work. For the CPU it is ordinary memory, so that code which stages data runs, and is tested, without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device.h"

namespace longhaul {

class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  // For copies to and from `device`. Throws OutOfMemoryError with the byte count. The content is unspecified.
  PinnedBuffer(Device device, int64_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] int64_t bytes() const noexcept { return bytes_; }

 private:
  void release() noexcept;

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  Device device_;
};

}  // namespace longhaul
