// See buffer.h. CUDA memory comes with the CUDA backend; asking for it here without one is a DeviceError.
#include "device/buffer.h"

#include <cstdlib>
#include <new>
#include <utility>

#include "base/cast.h"
#include "base/error.h"
#include "device/cuda_memory.h"

namespace longhaul {
namespace {
constexpr int64_t kAlignment = 256;
}

Buffer::Buffer(Device device, int64_t bytes) : bytes_(bytes), device_(device) {
  LH_CHECK(bytes >= 0, "a buffer cannot hold {} bytes", bytes);
  if (bytes == 0) {
    return;
  }
  if (device.kind == DeviceKind::Cuda) {
    data_ = cuda::allocate(device, bytes);
    return;
  }
  data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<size_t>(round_up(bytes, kAlignment))));
  if (data_ == nullptr) {
    throw OutOfMemoryError("the host could not provide {} bytes; use a smaller micro_batch_tokens or model", bytes);
  }
}

Buffer::~Buffer() { release(); }

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)), device_(other.device_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    device_ = other.device_;
  }
  return *this;
}

void Buffer::release() noexcept {
  if (device_.kind == DeviceKind::Cuda) {
    cuda::release(device_, data_);
  } else {
    std::free(data_);  // NOLINT: pairs with aligned_alloc
  }
  data_ = nullptr;
}

}  // namespace longhaul
