// DeviceComm for CPU tensors over MPI. Owns a communicator of its own. Long tensors travel in pieces, because MPI counts
// are 32-bit; the pieces are the same on all ranks.
#pragma once

#include <mpi.h>

#include <memory>

#include "comm/device_comm.h"
#include "comm/mpi_handle.h"

namespace longhaul {

class MpiDeviceComm final : public DeviceComm {
 public:
  // Duplicates `comm` (collective over it).
  MpiDeviceComm(MPI_Comm comm, DeviceCommOptions options);

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

  MpiDeviceComm(MpiComm comm, DeviceCommOptions options);
  // How much of a tensor an ordered reduction works on at a time.
  [[nodiscard]] int64_t block_elements(DType dtype) const;

  MpiComm comm_;
};

}  // namespace longhaul
