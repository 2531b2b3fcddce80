// See cuda_stream.h and cuda_context.h.
#include "device/cuda_stream.h"

#include "base/error.h"
#include "device/cuda_check.h"
#include "device/cuda_context.h"

namespace longhaul {
namespace {

constexpr int64_t kBlasWorkspaceBytes = int64_t{32} << 20;  // what cuBLAS recommends for Hopper

int multiprocessors_of(Device device) {
  int count = 0;
  LH_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device.index));
  return count;
}

}  // namespace

void StreamView::synchronize() const { LH_CUDA(cudaStreamSynchronize(handle_)); }

void StreamView::wait(const CudaEvent& event) const { LH_CUDA(cudaStreamWaitEvent(handle_, event.handle(), 0)); }

CudaStream::CudaStream(Device device) {
  LH_CHECK(device.kind == DeviceKind::Cuda, "a stream was asked for on {}", to_string(device));
  LH_CUDA(cudaSetDevice(device.index));
  LH_CUDA(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking));
}

CudaStream::~CudaStream() {
  if (handle_ != nullptr) {
    static_cast<void>(cudaStreamDestroy(handle_));
  }
}

CudaEvent::CudaEvent(Device device) {
  LH_CUDA(cudaSetDevice(device.index));
  LH_CUDA(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming));
}

CudaEvent::~CudaEvent() {
  if (handle_ != nullptr) {
    static_cast<void>(cudaEventDestroy(handle_));
  }
}

void CudaEvent::record(StreamView stream) { LH_CUDA(cudaEventRecord(handle_, stream.handle())); }

bool CudaEvent::is_done() const {
  const cudaError_t state = cudaEventQuery(handle_);
  if (state == cudaErrorNotReady) {
    return false;
  }
  cuda::check(state, "cudaEventQuery");
  return true;
}

void CudaEvent::synchronize() const { LH_CUDA(cudaEventSynchronize(handle_)); }

CudaContext::CudaContext(Device device, Checks checks)
    : device_(device), checks_(checks), multiprocessors_(multiprocessors_of(device)), stream_(device), blas_(device, kBlasWorkspaceBytes) {}

}  // namespace longhaul
