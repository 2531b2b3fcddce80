// Raw CUDA memory for Buffer and PinnedBuffer. Without the CUDA backend, no_cuda.cpp supplies functions that throw DeviceError.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device.h"

namespace longhaul::cuda {

[[nodiscard]] std::byte* allocate(Device device, int64_t bytes);
void release(Device device, std::byte* data) noexcept;

// Page-locked memory of the host, for PinnedBuffer.
[[nodiscard]] std::byte* allocate_pinned(Device device, int64_t bytes);
void release_pinned(std::byte* data) noexcept;

}  // namespace longhaul::cuda
