// See mpi_device_comm.h.
#include "comm/mpi_device_comm.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/cast.h"
#include "comm/mpi_check.h"
#include "comm/mpi_ordered_reduce.h"
#include "comm/reduce_ops.h"

namespace longhaul {

namespace {

constexpr int kAllToAllTag = 32765;  // above HostComm::kMaxTag, so never a caller's

int rank_in(MPI_Comm comm) {
  int rank = 0;
  LH_MPI(MPI_Comm_rank(comm, &rank));
  return rank;
}

int size_of_comm(MPI_Comm comm) {
  int size = 0;
  LH_MPI(MPI_Comm_size(comm, &size));
  return size;
}

std::byte* bytes_of(const TensorView& view) { return static_cast<std::byte*>(view.raw()); }

template <class T>
MPI_Datatype mpi_type() {
  if constexpr (std::is_same_v<T, double>) {
    return MPI_DOUBLE;
  } else if constexpr (std::is_same_v<T, float>) {
    return MPI_FLOAT;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return MPI_INT64_T;
  } else {
    static_assert(std::is_same_v<T, int32_t>);
    return MPI_INT32_T;
  }
}

class MpiTransfer final : public TransferState {
 public:
  MpiTransfer(MPI_Comm comm, int64_t max_message_bytes) : requests(comm, max_message_bytes) {}
  void wait() override { requests.wait(); }

  MpiRequests requests;
};

}  // namespace

MpiDeviceComm::MpiDeviceComm(MPI_Comm comm, DeviceCommOptions options)
    : MpiDeviceComm(MpiComm::duplicate(comm), std::move(options)) {}

MpiDeviceComm::MpiDeviceComm(MpiComm comm, DeviceCommOptions comm_options)
    : DeviceComm(rank_in(comm.get()), size_of_comm(comm.get()), DeviceKind::Cpu, std::move(comm_options)), comm_(std::move(comm)) {
  LH_MPI(MPI_Comm_set_errhandler(comm_.get(), MPI_ERRORS_RETURN));
}

int64_t MpiDeviceComm::block_elements(DType dtype) const {
  return std::min(options().max_message_bytes, detail::kReduceBlockBytes) / size_of(dtype);
}

void MpiDeviceComm::do_all_reduce_sum(const TensorView& values, ReduceOrder order) {
  detail::with_numbers(values, [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    const int64_t n = values.numel();
    // Sums of integers do not depend on their order.
    if (order == ReduceOrder::Fixed && std::is_floating_point_v<T>) {
      detail::ordered_all_reduce(comm_.get(), {rank(), size()}, mpi_type<T>(), data, n, block_elements(values.dtype()), detail::Sum{});
      return;
    }
    const int64_t piece = options().max_message_bytes / size_of(values.dtype());
    for (int64_t done = 0; done < n; done += piece) {
      const int count = narrow<int>(std::min(piece, n - done));
      LH_MPI(MPI_Allreduce(MPI_IN_PLACE, data + done, count, mpi_type<T>(), MPI_SUM, comm_.get()));
    }
  });
}

void MpiDeviceComm::do_all_reduce_max(const TensorView& values) {
  detail::with_numbers(values, [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    detail::ordered_all_reduce(comm_.get(), {rank(), size()}, mpi_type<T>(), data, values.numel(), block_elements(values.dtype()),
                               detail::MaxOrNan{});
  });
}

void MpiDeviceComm::do_reduce_scatter_sum(const TensorView& input, const TensorView& mine) {
  detail::with_numbers(input, [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    detail::ordered_reduce_scatter(comm_.get(), {rank(), size()}, data, mine.data<T>(), mine.numel(), block_elements(input.dtype()),
                                   detail::Sum{});
  });
}

void MpiDeviceComm::do_all_gather(const TensorView& mine, const TensorView& all) {
  const int64_t bytes = mine.bytes();
  std::byte* const target = bytes_of(all);
  const bool in_place = bytes > 0 && bytes_of(mine) == target + bytes * rank();
  if (bytes * size() <= options().max_message_bytes) {
    const int count = narrow<int>(bytes);
    LH_MPI(MPI_Allgather(in_place ? MPI_IN_PLACE : mine.raw(), count, MPI_BYTE, target, count, MPI_BYTE, comm_.get()));
    return;
  }
  const int64_t piece = std::max<int64_t>(1, options().max_message_bytes / size());
  std::vector<std::byte> pieces(static_cast<size_t>(std::min(piece, bytes) * size()));
  for (int64_t done = 0; done < bytes; done += piece) {
    const int count = narrow<int>(std::min(piece, bytes - done));
    LH_MPI(MPI_Allgather(bytes_of(mine) + done, count, MPI_BYTE, pieces.data(), count, MPI_BYTE, comm_.get()));
    for (int r = 0; r < size(); ++r) {
      std::memcpy(target + bytes * r + done, pieces.data() + int64_t{count} * r, static_cast<size_t>(count));
    }
  }
}

void MpiDeviceComm::do_broadcast(const TensorView& values, int root) {
  const int64_t bytes = values.bytes();
  const int64_t piece = options().max_message_bytes;
  for (int64_t done = 0; done < bytes; done += piece) {
    LH_MPI(MPI_Bcast(bytes_of(values) + done, narrow<int>(std::min(piece, bytes - done)), MPI_BYTE, root, comm_.get()));
  }
}

void MpiDeviceComm::do_all_to_all_v(const AllToAllV& op) {
  // Pairwise messages, because MPI_Alltoallv has 32-bit offsets. A pair agrees about its length, so zero rows need none.
  int64_t row_bytes = size_of(op.send.dtype());
  for (int d = 1; d < op.send.rank(); ++d) {
    row_bytes *= op.send.size(d);
  }
  MpiRequests requests(comm_.get(), options().max_message_bytes);
  const std::byte* own = nullptr;
  std::byte* target = bytes_of(op.recv);
  std::byte* own_target = nullptr;
  for (int r = 0; r < size(); ++r) {
    const int64_t bytes = op.recv_rows[static_cast<size_t>(r)] * row_bytes;
    if (r == rank()) {
      own_target = target;
    } else {
      requests.irecv(target, bytes, r, kAllToAllTag);
    }
    target += bytes;
  }
  const std::byte* source = bytes_of(op.send);
  for (int r = 0; r < size(); ++r) {
    const int64_t bytes = op.send_rows[static_cast<size_t>(r)] * row_bytes;
    if (r == rank()) {
      own = source;
    } else {
      requests.isend(source, bytes, r, kAllToAllTag);
    }
    source += bytes;
  }
  const int64_t own_bytes = op.send_rows[static_cast<size_t>(rank())] * row_bytes;
  if (own_bytes > 0) {
    std::memcpy(own_target, own, static_cast<size_t>(own_bytes));
  }
  requests.wait();
}

void MpiDeviceComm::do_all_to_all_counts(std::span<const int64_t> send_rows, std::span<int64_t> recv_rows) {
  LH_MPI(MPI_Alltoall(send_rows.data(), 1, MPI_INT64_T, recv_rows.data(), 1, MPI_INT64_T, comm_.get()));
}

std::unique_ptr<TransferState> MpiDeviceComm::do_isend(const TensorView& values, int peer, int tag) {
  auto transfer = std::make_unique<MpiTransfer>(comm_.get(), options().max_message_bytes);
  transfer->requests.isend(values.raw(), values.bytes(), peer, tag);
  return transfer;
}

std::unique_ptr<TransferState> MpiDeviceComm::do_irecv(const TensorView& values, int peer, int tag) {
  auto transfer = std::make_unique<MpiTransfer>(comm_.get(), options().max_message_bytes);
  transfer->requests.irecv(values.raw(), values.bytes(), peer, tag);
  return transfer;
}

}  // namespace longhaul
