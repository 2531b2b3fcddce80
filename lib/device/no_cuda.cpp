// Stands in for the CUDA side of this folder, so that callers need no #ifdef.
#include <cstring>

#include "base/error.h"
#include "device/copy_bytes.h"
#include "device/cuda_context.h"
#include "device/cuda_memory.h"
#include "device/gpus.h"

namespace longhaul {
namespace {

[[noreturn]] void throw_no_cuda(std::string_view what) {
  throw DeviceError("{}, but this program was built without the CUDA backend", what);
}

}  // namespace

namespace cuda {

std::byte* allocate(Device device, int64_t bytes) {
  throw DeviceError("{} bytes were asked for on {}, but this program was built without the CUDA backend", bytes,
                    to_string(device));
}

void release(Device, std::byte*) noexcept {}

std::byte* allocate_pinned(Device device, int64_t bytes) {
  throw DeviceError("{} bytes of pinned memory were asked for on {}, but this program was built without the CUDA backend", bytes,
                    to_string(device));
}

void release_pinned(std::byte*) noexcept {}

}  // namespace cuda

std::string cuda_version() { return "built without"; }
std::vector<GpuInfo> find_gpus() { return {}; }

GpuInfo memory_of(Device device) { throw_no_cuda(fmt::format("the memory of {} was asked for", to_string(device))); }
int64_t used_bytes(Device device) { throw_no_cuda(fmt::format("the memory of {} was asked for", to_string(device))); }

void copy_bytes(Place from, Place to, int64_t bytes) {
  if (from.device.kind != DeviceKind::Cpu || to.device.kind != DeviceKind::Cpu) {
    throw_no_cuda("a copy from or to a GPU was asked for");
  }
  if (bytes > 0) {
    std::memmove(to.data, from.data, static_cast<size_t>(bytes));
  }
}

void copy_rows(Place from, int64_t from_stride, Place to, int64_t to_stride, int64_t row_bytes, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) {
    copy_bytes({from.device, static_cast<std::byte*>(from.data) + row * from_stride},
               {to.device, static_cast<std::byte*>(to.data) + row * to_stride}, row_bytes);
  }
}

void clear_bytes(Place place, int64_t bytes) {
  if (place.device.kind != DeviceKind::Cpu) {
    throw_no_cuda("memory of a GPU was to be cleared");
  }
  if (bytes > 0) {
    std::memset(place.data, 0, static_cast<size_t>(bytes));
  }
}

void copy_bytes_async(StreamView, Place, Place, int64_t) { throw_no_cuda("a copy on a GPU's stream was asked for"); }

void StreamView::synchronize() const { throw_no_cuda("a GPU's stream was waited for"); }
void StreamView::wait(const CudaEvent&) const { throw_no_cuda("a GPU's stream was told to wait"); }

CudaStream::CudaStream(Device device) { throw_no_cuda(fmt::format("a stream was asked for on {}", to_string(device))); }
CudaStream::~CudaStream() = default;

CudaEvent::CudaEvent(Device device) { throw_no_cuda(fmt::format("an event was asked for on {}", to_string(device))); }
CudaEvent::~CudaEvent() = default;
void CudaEvent::record(StreamView) { throw_no_cuda("a GPU's event was recorded"); }
bool CudaEvent::is_done() const { throw_no_cuda("a GPU's event was asked about"); }
void CudaEvent::synchronize() const { throw_no_cuda("a GPU's event was waited for"); }

struct CudaBlas::State {};
CudaBlas::CudaBlas(Device, int64_t) { throw_no_cuda("cuBLAS was asked for"); }
CudaBlas::~CudaBlas() = default;
void CudaBlas::gemm(StreamView, const CudaGemm&) { throw_no_cuda("a product on a GPU was asked for"); }

CudaContext::CudaContext(Device device, Checks checks)
    : device_(device), checks_(checks), multiprocessors_(0), stream_(device), blas_(device, 0) {}

}  // namespace longhaul
