// Starts a kernel on a stream, or in the emulation.
#pragma once

#include "kernels/kda/cuda/ptx.cuh"

#ifndef LH_EMULATE_CUDA
#include <cuda_runtime.h>
#endif

struct CUstream_st;

namespace longhaul::kda::cuda {

enum class Blocks : uint8_t { Independent, Waiting };  // for each other

// Returns a CUDA error code, 0 when all is well. `error` of an earlier launch is handed through, and nothing is started.
template <Blocks kBlocks = Blocks::Independent, class Params>
[[nodiscard]] int launch(int error, void (*kernel)(Params), int64_t blocks, int threads, int64_t shared_bytes,
                         CUstream_st* stream, const Params& params) {
  if (error != 0 || blocks == 0) {
    return error;
  }
#ifdef LH_EMULATE_CUDA
  static_cast<void>(stream);
  constexpr auto start = kBlocks == Blocks::Waiting ? simt::launch_together : simt::launch;
  start(static_cast<unsigned>(blocks), static_cast<unsigned>(threads), static_cast<size_t>(shared_bytes), [&] { kernel(params); });
  return 0;
#else
  constexpr int64_t without_asking = 48 * 1024;
  if (shared_bytes > without_asking) {
    error = static_cast<int>(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                  cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
    if (error != 0) {
      return error;
    }
  }
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), static_cast<size_t>(shared_bytes), stream>>>(params);
  return static_cast<int>(cudaGetLastError());
#endif
}

// Of the current device.
[[nodiscard]] inline int64_t multiprocessors() {
#ifdef LH_EMULATE_CUDA
  return 1;
#else
  int device = 0;
  int count = 1;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return 1;
  }
  return count;
#endif
}

}  // namespace longhaul::kda::cuda
