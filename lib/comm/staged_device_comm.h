// DeviceComm for tensors on a GPU that travel through the host: copied down to page-locked memory, moved by a DeviceComm for CPU
// tensors, copied up. Slow, but it needs nothing but MPI and lets several ranks share one GPU: for tests, and where there is no
// NCCL. Sums and their order are those of the inner communicator, bit by bit.
//
// Ordered with the compute stream: every operation waits for the stream, and its results are there when it returns.
// Collectives work in pieces, so that their host memory is bounded; a transfer under way holds the memory of its message.
#pragma once

#include <memory>

#include "comm/device_comm.h"
#include "comm/staging.h"

namespace longhaul {

class StagedDeviceComm final : public DeviceComm {
 public:
  static constexpr int64_t kStagingBytes = int64_t{64} << 20;

  // `inner` moves CPU tensors between the same ranks, and nobody else uses it. `cuda` is the context of this rank's GPU and must
  // outlive the communicator; null: the tensors are on the CPU, for tests. `staging_bytes`: host memory of a collective.
  StagedDeviceComm(std::unique_ptr<DeviceComm> inner, CudaContext* cuda, DeviceCommOptions options,
                   int64_t staging_bytes = kStagingBytes);

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

  // Elements of a piece when `parts` of them are staged together; at least one.
  [[nodiscard]] int64_t piece_elements(DType dtype, int64_t parts) const;
  // op(host copy of a piece), piece by piece; the result goes back to the tensor.
  template <class Op>
  void reduce_in_pieces(const TensorView& values, Op&& op);
  // One round of do_all_to_all_v: of the elements to and from each peer those from `begin` on, at most `quota`.
  void exchange_round(const AllToAllV& op, int64_t begin, int64_t quota);

  std::unique_ptr<DeviceComm> inner_;
  Staging staging_;
  int64_t staging_bytes_;
};

}  // namespace longhaul
