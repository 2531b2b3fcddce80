// What operations on one GPU share: the stream they run on, the cuBLASLt handle with its workspace, and facts about the
// chip. Owned by the session (or by ExecContext::cuda in tests); operations reach it through their ExecContext.
// No CUDA headers; without the CUDA backend the constructor throws DeviceError.
#pragma once

#include <cstdint>
#include <memory>

#include "device/cuda_blas.h"
#include "device/cuda_stream.h"
#include "device/device.h"

namespace longhaul {

class CudaContext {
 public:
  enum class Checks : uint8_t {
    Asynchronous,  // a failed kernel shows at the next synchronisation
    Synchronise,   // wait after every launch, so that an error names its operation; for finding faults
  };

  explicit CudaContext(Device device, Checks checks = Checks::Asynchronous);
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] StreamView stream() const noexcept { return stream_.view(); }
  [[nodiscard]] CudaBlas& blas() noexcept { return blas_; }
  [[nodiscard]] int multiprocessors() const noexcept { return multiprocessors_; }
  [[nodiscard]] Checks checks() const noexcept { return checks_; }

 private:
  Device device_;
  Checks checks_;
  int multiprocessors_;
  CudaStream stream_;
  CudaBlas blas_;
};

}  // namespace longhaul
