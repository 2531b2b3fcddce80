// Owner of one NCCL communicator: made by all ranks of a group together, destroyed in an orderly way, or aborted when it failed
// or an exception is under way, because destroying waits for operations whose peers may never come.
#pragma once

#include <string>
#include <string_view>

#include "comm/host_comm.h"
#include "comm/nccl_api.h"
#include "device/device.h"

namespace longhaul {

class NcclCommunicator {
 public:
  // Collective over `host`, through which the id travels. `api` must outlive the communicator. CommError.
  NcclCommunicator(const NcclApi& api, HostComm& host, Device device, std::string name);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  [[nodiscard]] ncclComm_t get() const noexcept { return comm_; }

  // Throws CommError unless `result`, what `call` returned, is a success; also waits where NCCL was set to return early.
  void check(ncclResult_t result, std::string_view call);
  // CommError when NCCL has found out that a peer or the network failed.
  void check_peers();

 private:
  [[noreturn]] void fail(ncclResult_t result, std::string_view call);
  void abort() noexcept;

  const NcclApi& api_;
  std::string name_;
  int exceptions_;  // under way when this was made
  ncclComm_t comm_ = nullptr;
};

}  // namespace longhaul
