// Stands in for the CUDA side of this folder, so that callers need no #ifdef.
#include "base/error.h"
#include "device/cuda_memory.h"

namespace longhaul::cuda {

std::byte* allocate(Device device, int64_t bytes) {
  throw DeviceError("{} bytes were asked for on {}, but this program was built without the CUDA backend", bytes,
                    to_string(device));
}

void release(Device, std::byte*) noexcept {}

}  // namespace longhaul::cuda
