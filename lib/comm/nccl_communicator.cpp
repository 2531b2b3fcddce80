// See nccl_communicator.h.
#include "comm/nccl_communicator.h"

#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "base/error.h"
#include "device/cuda_check.h"

namespace longhaul {

NcclCommunicator::NcclCommunicator(const NcclApi& api, HostComm& host, Device device, std::string name)
    : api_(api), name_(std::move(name)), exceptions_(std::uncaught_exceptions()) {
  ncclUniqueId id{};
  if (host.rank() == 0) {
    check(api_.get_unique_id(&id), "ncclGetUniqueId");
  }
  host.broadcast_value(id, 0);
  LH_CUDA(cudaSetDevice(device.index));
  JournalWriter(host.journal(), name_ + "/nccl").note("init", 0, -1, [&] {
    check(api_.comm_init_rank(&comm_, host.size(), id, host.rank()), "ncclCommInitRank");
  });
}

NcclCommunicator::~NcclCommunicator() {
  if (comm_ == nullptr) {
    return;
  }
  if (std::uncaught_exceptions() > exceptions_) {
    abort();
  } else {
    static_cast<void>(api_.comm_destroy(comm_));  // nothing is left to report to
  }
}

void NcclCommunicator::abort() noexcept {
  if (ncclComm_t comm = std::exchange(comm_, nullptr)) {
    static_cast<void>(api_.comm_abort(comm));
  }
}

void NcclCommunicator::fail(ncclResult_t result, std::string_view call) {
  const std::string what = api_.get_error_string(result);
  const char* last = api_.get_last_error(comm_);
  const std::string detail = last == nullptr || *last == '\0' ? "" : fmt::format(": {}", last);
  abort();
  throw CommError("{} in group {} failed: {}{}; NCCL_DEBUG=INFO says more", call, name_, what, detail);
}

void NcclCommunicator::check(ncclResult_t result, std::string_view call) {
  while (result == ncclInProgress && comm_ != nullptr) {  // with NCCL_COMM_BLOCKING=0
    std::this_thread::sleep_for(std::chrono::microseconds(10));
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = api_.comm_get_async_error(comm_, &state);
    result = asked == ncclSuccess ? state : asked;
  }
  if (result != ncclSuccess) [[unlikely]] {
    fail(result, call);
  }
}

void NcclCommunicator::check_peers() {
  if (comm_ == nullptr) {
    throw CommError("group {} is used after NCCL failed in it", name_);
  }
  ncclResult_t state = ncclSuccess;
  check(api_.comm_get_async_error(comm_, &state), "ncclCommGetAsyncError");
  check(state, "an operation");
}

}  // namespace longhaul
