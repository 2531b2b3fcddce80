// An owning block of device memory, aligned to 256 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device.h"

namespace longhaul {

class Buffer {
 public:
  Buffer() = default;
  // Throws OutOfMemoryError with the byte count. The content is unspecified.
  Buffer(Device device, int64_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] int64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] Device device() const noexcept { return device_; }

 private:
  void release() noexcept;

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  Device device_;
};

}  // namespace longhaul
