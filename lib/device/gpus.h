// Which GPUs this node has. Works, and finds none, on machines without a GPU or a driver and in builds without CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"

namespace longhaul {

struct GpuInfo {
  Device device;
  std::string name;
  int compute_major = 0, compute_minor = 0;  // 9, 0 for Hopper
  int multiprocessors = 0;
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
};

// Without initialising more than the query needs; free_bytes is filled by memory_of.
[[nodiscard]] std::vector<GpuInfo> find_gpus();
// With free_bytes, which needs a context on the GPU. DeviceError when there is no such GPU.
[[nodiscard]] GpuInfo memory_of(Device device);
// Bytes taken on the GPU, by whomever. Cheap enough for every step, unlike the queries above, which read all GPUs' properties.
[[nodiscard]] int64_t used_bytes(Device device);
// The version of CUDA that this program was built with ("13.0"), or "built without".
[[nodiscard]] std::string cuda_version();
// Dense bf16 operations a second by the maker's data sheet, the 100 % of a utilisation; 0 for a GPU that is not known here.
[[nodiscard]] double peak_bf16_flops(const GpuInfo& gpu);
// "none", or one line a GPU: "cuda:0 NVIDIA H200, compute 9.0, 132 multiprocessors, 139.8 GiB".
[[nodiscard]] std::string describe_gpus();

}  // namespace longhaul
