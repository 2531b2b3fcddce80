// See pinned_buffer.h.
#include "device/pinned_buffer.h"

#include <cstdlib>
#include <utility>

#include "base/cast.h"
#include "base/error.h"
#include "device/cuda_memory.h"

namespace longhaul {
namespace {
constexpr int64_t kAlignment = 256;
}

PinnedBuffer::PinnedBuffer(Device device, int64_t bytes) : bytes_(bytes), device_(device) {
  LH_CHECK(bytes >= 0, "a buffer cannot hold {} bytes", bytes);
  if (bytes == 0) {
    return;
  }
  if (device.kind == DeviceKind::Cuda) {
    data_ = cuda::allocate_pinned(device, bytes);
    return;
  }
  data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<size_t>(round_up(bytes, kAlignment))));
  if (data_ == nullptr) {
    throw OutOfMemoryError("the host could not provide {} bytes to stage data in", bytes);
  }
}

PinnedBuffer::~PinnedBuffer() { release(); }

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)), device_(other.device_) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  return *this;
}

void PinnedBuffer::release() noexcept {
  if (data_ == nullptr) {
    return;
  }
  if (device_.kind == DeviceKind::Cuda) {
    cuda::release_pinned(data_);
  } else {
    std::free(data_);  // NOLINT: pairs with aligned_alloc
  }
}

}  // namespace longhaul
