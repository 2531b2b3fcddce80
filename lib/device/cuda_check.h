// Checks of CUDA calls, for device sources and the host code of the CUDA backend: includes CUDA's own header.
// Messages are formatted elsewhere, because nvcc cannot compile fmt.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>

#include "device/cuda_context.h"

namespace longhaul::cuda {

// Throws OutOfMemoryError for an allocation failure, otherwise DeviceError with CUDA's text, the call and the place.
[[noreturn]] void throw_cuda_error(cudaError_t error, const char* what, std::source_location where);

inline void check(cudaError_t error, const char* what, std::source_location where = std::source_location::current()) {
  if (error != cudaSuccess) [[unlikely]] {
    throw_cuda_error(error, what, where);
  }
}

// After a kernel launch: throws when it could not start, and with Checks::Synchronise also when it failed.
inline void check_launch(const CudaContext& context, const char* op, std::source_location where = std::source_location::current()) {
  check(cudaGetLastError(), op, where);
  if (context.checks() == CudaContext::Checks::Synchronise) [[unlikely]] {
    check(cudaStreamSynchronize(context.stream().handle()), op, where);
  }
}

}  // namespace longhaul::cuda

// LH_CUDA(cudaMemsetAsync(p, 0, n, stream)): throws when the call returns an error.
#define LH_CUDA(call) ::longhaul::cuda::check((call), #call)
// LH_CHECK_LAUNCH(ctx, "rms_norm_forward") follows every kernel launch; ctx is the operation's ExecContext.
#define LH_CHECK_LAUNCH(ctx, op) ::longhaul::cuda::check_launch((ctx).cuda_context(), op)
