// The data plane: collectives and transfers on contiguous tensors. Implementations: MpiDeviceComm (CPU tensors),
// StagedDeviceComm and the one of nccl_device_comm.h (tensors on a GPU), LoopbackDeviceComm (one rank), ThreadDeviceComm (ranks
// as threads, for tests).
//
// Every rank of a group calls the same collectives in the same order; a rank with nothing to contribute joins with
// zero-sized parts. Arguments are validated here, once; each operation is noted in the journal under the group's name.
// Tensors of the CPU are ready when the function returns. Those of a GPU are ready for later work on the stream of the
// communicator's CudaContext, whose earlier work the operation follows: nobody else's stream may use them meanwhile, and the
// host must wait for the stream before it reads them. Wrong arguments throw ShapeError or UsageError, failures CommError.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "comm/comm_journal.h"
#include "comm/pending_transfer.h"
#include "tensor/tensor_view.h"

namespace longhaul {

// How floating-point sums are ordered. Fixed is (rank 0 + rank 1) + rank 2 …, in the tensor's own type, whatever the
// library would do: equal on every machine and for every message size. Fast leaves the order to MPI. NCCL has one order of its
// own, for both: the same in each run on the same machines with the same layout, sizes and settings of NCCL.
enum class ReduceOrder : uint8_t { Fast, Fixed };

struct DeviceCommOptions {
  std::string name = "world";  // of the group
  ReduceOrder reduce_order = ReduceOrder::Fast;
  CommJournal* journal = nullptr;
  int64_t max_message_bytes = int64_t{1} << 30;  // longer messages travel in pieces: MPI counts are 32-bit
};

class DeviceComm {
 public:
  virtual ~DeviceComm() = default;
  DeviceComm(const DeviceComm&) = delete;
  DeviceComm& operator=(const DeviceComm&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const std::string& name() const noexcept { return options_.name; }
  [[nodiscard]] ReduceOrder reduce_order() const noexcept { return options_.reduce_order; }

  // --- collectives ---
  // values += the same tensor of all other ranks, in place; f64, f32, i64, i32. The order is the communicator's.
  void all_reduce_sum(const TensorView& values) { all_reduce_sum(values, options_.reduce_order); }
  void all_reduce_sum(const TensorView& values, ReduceOrder order);
  // The largest value over the ranks, in place; f64, f32, i64, i32. A NaN on any rank gives NaN on all.
  void all_reduce_max(const TensorView& values);
  // mine[i] = sum over ranks of input[rank * n + i], n = mine.numel(); the order is always fixed.
  // input: [size * rows, …], mine: [rows, …].
  void reduce_scatter_sum(const TensorView& input, const TensorView& mine);
  // all: the ranks' `mine` one after another; [size * rows, …] from [rows, …]. Any dtype. `mine` may be its own part
  // of `all`.
  void all_gather(const TensorView& mine, const TensorView& all);
  // The tensor of rank `root` on all ranks. Any dtype.
  void broadcast(const TensorView& values, int root);

  // Rows for every rank, in rank order: the first send_rows[0] rows of `send` go to rank 0, and so on; `recv` is filled
  // in the same way. Row counts must be what the peers were told; exchange them first with all_to_all_counts.
  struct AllToAllV {
    TensorView send;                     // [sum of send_rows, …]
    std::span<const int64_t> send_rows;  // [size]
    TensorView recv;                     // [sum of recv_rows, …], rows of the same width and dtype
    std::span<const int64_t> recv_rows;  // [size]
  };
  void all_to_all_v(const AllToAllV& op);
  // recv_rows[r] = what rank r has in send_rows[our rank]; both [size].
  void all_to_all_counts(std::span<const int64_t> send_rows, std::span<int64_t> recv_rows);

  // --- point to point; tag in [0, HostComm::kMaxTag], any dtype ---
  // May block until the peer receives; crossing transfers use isend and irecv.
  void send(const TensorView& values, int peer, int tag);
  // The peer must send exactly this many bytes.
  void recv(const TensorView& values, int peer, int tag);
  // The memory stays untouched (isend) or unread (irecv) until wait() has returned; on a GPU, later work on the context's stream
  // then follows the transfer. Messages between two ranks with one tag arrive in the order they were sent. NCCL knows no tags:
  // there all messages from one rank to another must be received in the order in which they were sent.
  [[nodiscard]] PendingTransfer isend(const TensorView& values, int peer, int tag);
  [[nodiscard]] PendingTransfer irecv(const TensorView& values, int peer, int tag);

  // The host waits until all operations so far are done. Unlike waiting for the stream, this ends with a CommError when a peer
  // is known to have failed.
  void finish();

 protected:
  DeviceComm(int rank, int size, DeviceKind kind, DeviceCommOptions options);
  [[nodiscard]] const DeviceCommOptions& options() const noexcept { return options_; }

 private:
  virtual void do_all_reduce_sum(const TensorView& values, ReduceOrder order) = 0;
  virtual void do_all_reduce_max(const TensorView& values) = 0;
  virtual void do_reduce_scatter_sum(const TensorView& input, const TensorView& mine) = 0;
  virtual void do_all_gather(const TensorView& mine, const TensorView& all) = 0;
  virtual void do_broadcast(const TensorView& values, int root) = 0;
  virtual void do_all_to_all_v(const AllToAllV& op) = 0;
  virtual void do_all_to_all_counts(std::span<const int64_t> send_rows, std::span<int64_t> recv_rows) = 0;
  [[nodiscard]] virtual std::unique_ptr<TransferState> do_isend(const TensorView& values, int peer, int tag) = 0;
  [[nodiscard]] virtual std::unique_ptr<TransferState> do_irecv(const TensorView& values, int peer, int tag) = 0;
  virtual void do_finish() {}  // where operations are done when they return, there is nothing to wait for

  void expect_tensor(std::string_view op, std::string_view argument, const TensorView& view) const;
  void expect_number(std::string_view op, const TensorView& view) const;
  void expect_peer(std::string_view op, int peer, int tag) const;

  int rank_;
  int size_;
  DeviceKind kind_;
  DeviceCommOptions options_;
  JournalWriter writer_;
};

}  // namespace longhaul
