// See self_host_comm.h.
#include "comm/self_host_comm.h"

#include <algorithm>

#include "comm/loopback_device_comm.h"

namespace longhaul {

std::unique_ptr<DeviceComm> SelfHostComm::make_cpu_device_comm(DeviceCommOptions options) {
  return std::make_unique<LoopbackDeviceComm>(std::move(options));
}

void SelfHostComm::do_send(std::span<const std::byte> data, int, int tag) { mailbox_.post({.tag = tag}, data); }

void SelfHostComm::do_recv(std::span<std::byte> data, int, int tag) {
  const std::optional<Bytes> letter = mailbox_.take({.tag = tag});
  if (!letter.has_value() || letter->size() != data.size()) {
    throw CommError("recv in group {} of one rank: wanted {} bytes with tag {}, {}", name(), data.size(), tag,
                    letter.has_value() ? fmt::format("got {}", letter->size()) : "nothing was sent before");
  }
  std::copy(letter->begin(), letter->end(), data.begin());
}

}  // namespace longhaul
