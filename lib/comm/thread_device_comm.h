// DeviceComm between threads of one process, for tests: every collective exchanges whole tensors, and reductions are
// always in rank order. Sends are copied at once and never wait.
#pragma once

#include <memory>

#include "comm/device_comm.h"
#include "comm/thread_hub.h"

namespace longhaul {

class ThreadDeviceComm final : public DeviceComm {
 public:
  ThreadDeviceComm(ThreadHub& hub, ThreadHub::Seat seat, DeviceCommOptions options)
      : DeviceComm(seat.rank, seat.size, DeviceKind::Cpu, std::move(options)), hub_(hub), seat_(std::move(seat)) {}

 private:
  void do_all_reduce_sum(const TensorView& values, ReduceOrder order) override;
  void do_all_reduce_max(const TensorView& values) override;
  void do_reduce_scatter_sum(const TensorView& input, const TensorView& mine) override;
  void do_all_gather(const TensorView& mine, const TensorView& all) override;
  void do_broadcast(const TensorView& values, int root) override;
  void do_all_to_all_v(const AllToAllV& op) override;
  void do_all_to_all_counts(std::span<const int64_t> send_rows, std::span<int64_t> recv_rows) override;
  [[nodiscard]] std::unique_ptr<TransferState> do_isend(const TensorView& values, int peer, int tag) override;
  [[nodiscard]] std::unique_ptr<TransferState> do_irecv(const TensorView& values, int peer, int tag) override;

  [[nodiscard]] std::vector<ThreadHub::Bytes> exchange(std::span<const std::byte> mine);
  // out = combination over ranks of elements [first, first + out.numel()) of their tensors like `input`.
  template <class Combine>
  void combine(const TensorView& input, int64_t first, const TensorView& out, Combine&& combine_two);

  ThreadHub& hub_;
  ThreadHub::Seat seat_;
  int64_t rounds_ = 0;
};

}  // namespace longhaul
