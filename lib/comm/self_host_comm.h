// HostComm of one rank, for programs that run without MPI (--check, prepare, unit tests). Collectives are copies;
// messages to itself are kept until they are received.
#pragma once

#include <memory>
#include <string>

#include "comm/host_comm.h"
#include "comm/mailbox.h"

namespace longhaul {

class SelfHostComm final : public HostComm {
 public:
  explicit SelfHostComm(std::string name = "world", CommJournal* journal = nullptr) : HostComm({}, std::move(name), journal) {}

  [[nodiscard]] std::unique_ptr<DeviceComm> make_cpu_device_comm(DeviceCommOptions options) override;

 private:
  void do_barrier() override {}
  void do_broadcast(std::span<std::byte>, int) override {}
  [[nodiscard]] std::vector<Bytes> do_all_gather(std::span<const std::byte> mine) override {
    return {Bytes(mine.begin(), mine.end())};
  }
  [[nodiscard]] std::unique_ptr<HostComm> do_split(int, int, std::string child_name) override {
    return std::make_unique<SelfHostComm>(std::move(child_name), journal());
  }
  void do_send(std::span<const std::byte> data, int peer, int tag) override;
  void do_recv(std::span<std::byte> data, int peer, int tag) override;

  Mailbox mailbox_;
};

}  // namespace longhaul
