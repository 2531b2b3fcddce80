// HostComm between threads of one process, so that code which communicates can be tested without mpirun:
//
//   run_ranks(4, [](HostComm& host, int rank) { … });
//
// Catch2's assertions are not safe on several threads: inside, use LH_CHECK, which throws, or collect results by rank
// and check them afterwards.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "comm/host_comm.h"
#include "comm/thread_hub.h"

namespace longhaul {

class ThreadHostComm final : public HostComm {
 public:
  ThreadHostComm(ThreadHub& hub, ThreadHub::Seat seat, std::string name, CommJournal* journal = nullptr)
      : HostComm({.rank = seat.rank, .size = seat.size, .local_rank = seat.rank, .local_size = seat.size}, std::move(name), journal),
        hub_(hub),
        seat_(std::move(seat)) {}

  // A ThreadDeviceComm.
  [[nodiscard]] std::unique_ptr<DeviceComm> make_cpu_device_comm(DeviceCommOptions options) override;

 private:
  void do_barrier() override;
  void do_broadcast(std::span<std::byte> data, int root) override;
  [[nodiscard]] std::vector<Bytes> do_all_gather(std::span<const std::byte> mine) override;
  [[nodiscard]] std::unique_ptr<HostComm> do_split(int color, int key, std::string name) override;
  void do_send(std::span<const std::byte> data, int peer, int tag) override;
  void do_recv(std::span<std::byte> data, int peer, int tag) override;

  ThreadHub& hub_;
  ThreadHub::Seat seat_;
  int64_t rounds_ = 0;
  int64_t children_ = 0;  // names the channels that come from this one
};

// Runs fn(host, rank) on `size` threads and waits for all. When ranks fail, rethrows the error of the lowest rank that
// failed by itself, not of those that only waited for it. A rank that waits longer than `limit` fails.
void run_ranks(int size, const std::function<void(HostComm& host, int rank)>& fn,
               std::chrono::milliseconds limit = std::chrono::seconds(60));

}  // namespace longhaul
