// DeviceComm of one rank, on the CPU or a GPU: collectives are copies or nothing. Messages to itself are kept (on the host)
// until received, so code that passes data around a ring works on a ring of one.
#pragma once

#include <memory>

#include "comm/device_comm.h"
#include "comm/mailbox.h"
#include "device/cuda_context.h"

namespace longhaul {

class LoopbackDeviceComm final : public DeviceComm {
 public:
  explicit LoopbackDeviceComm(DeviceCommOptions options = {}) : DeviceComm(0, 1, DeviceKind::Cpu, std::move(options)) {}
  // For tensors on the GPU of `cuda`, which must outlive the communicator; copies run on its stream.
  LoopbackDeviceComm(CudaContext& cuda, DeviceCommOptions options)
      : DeviceComm(0, 1, DeviceKind::Cuda, std::move(options)), cuda_(&cuda) {}

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

  void do_finish() override;

  // The parts may be the same memory: a rank's own part of a gathered tensor.
  void copy_tensor(const TensorView& from, const TensorView& to) const;

  CudaContext* cuda_ = nullptr;
  Mailbox mailbox_;
};

}  // namespace longhaul
