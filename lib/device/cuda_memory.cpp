// See cuda_memory.h and copy_bytes.h.
#include "device/cuda_memory.h"

#include <cstring>

#include "base/error.h"
#include "device/copy_bytes.h"
#include "device/cuda_check.h"

namespace longhaul {
namespace cuda {

std::byte* allocate(Device device, int64_t bytes) {
  LH_CUDA(cudaSetDevice(device.index));
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // it is sticky until read
    size_t free = 0, total = 0;
    static_cast<void>(cudaMemGetInfo(&free, &total));
    throw OutOfMemoryError("{} could not provide {} bytes; {} of its {} are free. Use a smaller micro_batch_tokens or model, or more ranks",
                           to_string(device), bytes, free, total);
  }
  check(error, "cudaMalloc");
  return static_cast<std::byte*>(data);
}

void release(Device, std::byte* data) noexcept {
  // At the end of the process the runtime may be gone already, and with it the memory; nothing is left to report to.
  static_cast<void>(cudaFree(data));
}

std::byte* allocate_pinned(Device device, int64_t bytes) {
  LH_CUDA(cudaSetDevice(device.index));
  void* data = nullptr;
  const cudaError_t error = cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocPortable);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // it is sticky until read
    throw OutOfMemoryError("the host could not lock {} bytes of memory to stage data in; raise the limit on locked memory (ulimit -l), "
                           "or use fewer ranks a node", bytes);
  }
  check(error, "cudaHostAlloc");
  return static_cast<std::byte*>(data);
}

void release_pinned(std::byte* data) noexcept { static_cast<void>(cudaFreeHost(data)); }

}  // namespace cuda

namespace {

void wait_for(const Place& place) {
  if (place.device.kind == DeviceKind::Cuda) {
    LH_CUDA(cudaSetDevice(place.device.index));
    LH_CUDA(cudaDeviceSynchronize());
  }
}

bool both_on_host(const Place& from, const Place& to) {
  return from.device.kind == DeviceKind::Cpu && to.device.kind == DeviceKind::Cpu;
}

}  // namespace

void copy_bytes(Place from, Place to, int64_t bytes) {
  if (bytes == 0) {
    return;
  }
  if (both_on_host(from, to)) {
    std::memmove(to.data, from.data, static_cast<size_t>(bytes));
    return;
  }
  wait_for(from);
  wait_for(to);
  LH_CUDA(cudaMemcpy(to.data, from.data, static_cast<size_t>(bytes), cudaMemcpyDefault));
  LH_CUDA(cudaDeviceSynchronize());
}

void copy_rows(Place from, int64_t from_stride, Place to, int64_t to_stride, int64_t row_bytes, int64_t rows) {
  if (row_bytes == 0 || rows == 0) {
    return;
  }
  wait_for(from);
  wait_for(to);
  LH_CUDA(cudaMemcpy2D(to.data, static_cast<size_t>(to_stride), from.data, static_cast<size_t>(from_stride),
                       static_cast<size_t>(row_bytes), static_cast<size_t>(rows), cudaMemcpyDefault));
  LH_CUDA(cudaDeviceSynchronize());
}

void clear_bytes(Place place, int64_t bytes) {
  if (bytes == 0) {
    return;
  }
  if (place.device.kind == DeviceKind::Cpu) {
    std::memset(place.data, 0, static_cast<size_t>(bytes));
    return;
  }
  wait_for(place);
  LH_CUDA(cudaMemset(place.data, 0, static_cast<size_t>(bytes)));
  LH_CUDA(cudaDeviceSynchronize());
}

void copy_bytes_async(StreamView stream, Place from, Place to, int64_t bytes) {
  if (bytes > 0) {
    LH_CUDA(cudaMemcpyAsync(to.data, from.data, static_cast<size_t>(bytes), cudaMemcpyDefault, stream.handle()));
  }
}

}  // namespace longhaul
