// See cuda_check.h.
#include "device/cuda_check.h"

#include <string_view>

#include "base/error.h"

namespace longhaul::cuda {

void throw_cuda_error(cudaError_t error, const char* what, std::source_location where) {
  std::string_view file = where.file_name();
  file = file.substr(file.find_last_of('/') + 1);
  if (error == cudaErrorMemoryAllocation) {
    throw OutOfMemoryError("the GPU ran out of memory in {} [{}:{}]", what, file, where.line());
  }
  throw DeviceError("CUDA error {} ({}) from {} [{}:{}]", cudaGetErrorName(error), cudaGetErrorString(error), what, file, where.line());
}

}  // namespace longhaul::cuda
