// DeviceComm of one rank on the CPU: collectives are copies or nothing. Messages to itself are kept until received, so
// code that passes data around a ring works on a ring of one.
#pragma once

#include <memory>

#include "comm/device_comm.h"
#include "comm/mailbox.h"

namespace longhaul {

class LoopbackDeviceComm final : public DeviceComm {
 public:
  explicit LoopbackDeviceComm(DeviceCommOptions options = {}) : DeviceComm(0, 1, DeviceKind::Cpu, std::move(options)) {}

 private:
  void do_all_reduce_sum(const TensorView&, ReduceOrder) override {}
  void do_all_reduce_max(const TensorView&) override {}
  void do_reduce_scatter_sum(const TensorView& input, const TensorView& mine) override;
  void do_all_gather(const TensorView& mine, const TensorView& all) override;
  void do_broadcast(const TensorView&, int) override {}
  void do_all_to_all_v(const AllToAllV& op) override;
  void do_all_to_all_counts(std::span<const int64_t> send_rows, std::span<int64_t> recv_rows) override;
  [[nodiscard]] std::unique_ptr<TransferState> do_isend(const TensorView& values, int peer, int tag) override;
  [[nodiscard]] std::unique_ptr<TransferState> do_irecv(const TensorView& values, int peer, int tag) override;

  Mailbox mailbox_;
};

}  // namespace longhaul
