// See gpus.h. The runtime library loads the driver by itself, and says so when there is none.
#include "base/error.h"
#include "device/cuda_check.h"
#include "device/gpus.h"

namespace longhaul {

std::string cuda_version() { return fmt::format("{}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10); }

std::vector<GpuInfo> find_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return {};
  }
  std::vector<GpuInfo> gpus;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    LH_CUDA(cudaGetDeviceProperties(&properties, index));
    gpus.push_back({.device = {DeviceKind::Cuda, index},
                    .name = properties.name,
                    .compute_major = properties.major,
                    .compute_minor = properties.minor,
                    .multiprocessors = properties.multiProcessorCount,
                    .total_bytes = static_cast<int64_t>(properties.totalGlobalMem)});
  }
  return gpus;
}

GpuInfo memory_of(Device device) {
  std::vector<GpuInfo> gpus = find_gpus();
  if (device.kind != DeviceKind::Cuda || device.index < 0 || device.index >= static_cast<int>(gpus.size())) {
    throw DeviceError("{} was asked for, but this node has {} GPUs: {}", to_string(device), gpus.size(), describe_gpus());
  }
  GpuInfo info = std::move(gpus[static_cast<size_t>(device.index)]);
  size_t free = 0, total = 0;
  LH_CUDA(cudaSetDevice(device.index));
  LH_CUDA(cudaMemGetInfo(&free, &total));
  info.free_bytes = static_cast<int64_t>(free);
  return info;
}

int64_t used_bytes(Device device) {
  size_t free = 0, total = 0;
  LH_CUDA(cudaSetDevice(device.index));
  LH_CUDA(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(total - free);
}

}  // namespace longhaul
