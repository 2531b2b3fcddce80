// See staged_device_comm.h.
#include "comm/staged_device_comm.h"

#include <algorithm>
#include <vector>

#include "base/cast.h"

namespace longhaul {

namespace {

std::byte* bytes_of(const TensorView& view) { return static_cast<std::byte*>(view.raw()); }

// Elements of a row times rows.
int64_t elements(const TensorView& view, int64_t rows) {
  for (int d = 1; d < view.rank(); ++d) {
    rows *= view.size(d);
  }
  return rows;
}

// Holds the message's host memory until the transfer ends, or the job does.
class StagedTransfer final : public TransferState {
 public:
  enum class Direction : uint8_t { Send, Receive };

  StagedTransfer(Staging& staging, Direction direction, const TensorView& values)
      : staging_(staging), direction_(direction), values_(values), buffer_(staging.take(values.bytes())) {}
  ~StagedTransfer() override {
    transfer = {};  // lets go of the memory first
    staging_.give_back(std::move(buffer_));
  }

  [[nodiscard]] TensorView host_view() const { return {buffer_.data(), values_.dtype(), values_.shape()}; }
  void copy_down() const {
    staging_.copy_down(bytes_of(values_), buffer_.data(), values_.bytes());
    staging_.wait();
  }
  void wait() override {
    transfer.wait();
    if (direction_ == Direction::Receive) {
      staging_.copy_up(buffer_.data(), bytes_of(values_), values_.bytes());
      staging_.wait();
    }
  }

  PendingTransfer transfer;  // of host_view()

 private:
  Staging& staging_;
  Direction direction_;
  TensorView values_;
  PinnedBuffer buffer_;
};

}  // namespace

StagedDeviceComm::StagedDeviceComm(std::unique_ptr<DeviceComm> inner, CudaContext* cuda, DeviceCommOptions comm_options,
                                   int64_t staging_bytes)
    : DeviceComm(inner->rank(), inner->size(), cuda == nullptr ? DeviceKind::Cpu : DeviceKind::Cuda, std::move(comm_options)),
      inner_(std::move(inner)),
      staging_(cuda),
      staging_bytes_(staging_bytes) {
  LH_CHECK(staging_bytes > 0, "staging needs memory, got {} bytes", staging_bytes);
}

int64_t StagedDeviceComm::piece_elements(DType dtype, int64_t parts) const {
  return std::max<int64_t>(1, staging_bytes_ / parts / size_of(dtype));
}

template <class Op>
void StagedDeviceComm::reduce_in_pieces(const TensorView& values, Op&& op) {
  const int64_t item = size_of(values.dtype());
  const int64_t piece = std::min(piece_elements(values.dtype(), 1), values.numel());
  std::byte* const host = staging_.scratch(piece * item);
  for (int64_t begin = 0; begin < values.numel(); begin += piece) {
    const int64_t n = std::min(piece, values.numel() - begin);
    std::byte* const part = bytes_of(values) + begin * item;
    staging_.copy_down(part, host, n * item);
    staging_.wait();
    op(TensorView(host, values.dtype(), {n}));
    staging_.copy_up(host, part, n * item);
    staging_.wait();
  }
}

void StagedDeviceComm::do_all_reduce_sum(const TensorView& values, ReduceOrder order) {
  reduce_in_pieces(values, [&](const TensorView& part) { inner_->all_reduce_sum(part, order); });
}

void StagedDeviceComm::do_all_reduce_max(const TensorView& values) {
  reduce_in_pieces(values, [&](const TensorView& part) { inner_->all_reduce_max(part); });
}

void StagedDeviceComm::do_reduce_scatter_sum(const TensorView& input, const TensorView& mine) {
  const int64_t item = size_of(mine.dtype());
  const int64_t piece = std::min(piece_elements(mine.dtype(), size() + 1), mine.numel());
  std::byte* const host = staging_.scratch(piece * item * (size() + 1));
  for (int64_t begin = 0; begin < mine.numel(); begin += piece) {
    const int64_t n = std::min(piece, mine.numel() - begin);
    std::byte* const result = host + n * item * size();
    for (int r = 0; r < size(); ++r) {
      staging_.copy_down(bytes_of(input) + (mine.numel() * r + begin) * item, host + n * item * r, n * item);
    }
    staging_.wait();
    inner_->reduce_scatter_sum(TensorView(host, mine.dtype(), {n * size()}), TensorView(result, mine.dtype(), {n}));
    staging_.copy_up(result, bytes_of(mine) + begin * item, n * item);
    staging_.wait();
  }
}

void StagedDeviceComm::do_all_gather(const TensorView& mine, const TensorView& all) {
  const int64_t item = size_of(mine.dtype());
  const int64_t piece = std::min(piece_elements(mine.dtype(), size()), mine.numel());
  std::byte* const host = staging_.scratch(piece * item * size());
  for (int64_t begin = 0; begin < mine.numel(); begin += piece) {
    const int64_t n = std::min(piece, mine.numel() - begin);
    std::byte* const own = host + n * item * rank();
    staging_.copy_down(bytes_of(mine) + begin * item, own, n * item);
    staging_.wait();
    inner_->all_gather(TensorView(own, mine.dtype(), {n}), TensorView(host, mine.dtype(), {n * size()}));
    for (int r = 0; r < size(); ++r) {
      staging_.copy_up(host + n * item * r, bytes_of(all) + (mine.numel() * r + begin) * item, n * item);
    }
    staging_.wait();
  }
}

void StagedDeviceComm::do_broadcast(const TensorView& values, int root) {
  const int64_t item = size_of(values.dtype());
  const int64_t piece = std::min(piece_elements(values.dtype(), 1), values.numel());
  std::byte* const host = staging_.scratch(piece * item);
  staging_.wait();  // also where nothing is copied down: the tensor may be in use by earlier work
  for (int64_t begin = 0; begin < values.numel(); begin += piece) {
    const int64_t n = std::min(piece, values.numel() - begin);
    std::byte* const part = bytes_of(values) + begin * item;
    if (rank() == root) {
      staging_.copy_down(part, host, n * item);
      staging_.wait();
    }
    inner_->broadcast(TensorView(host, values.dtype(), {n}), root);
    if (rank() != root) {
      staging_.copy_up(host, part, n * item);
      staging_.wait();
    }
  }
}

void StagedDeviceComm::do_all_to_all_v(const AllToAllV& op) {
  // Elements instead of rows, so that also one wide row is cut. All ranks run as many rounds as the longest message needs.
  const int64_t quota = piece_elements(op.send.dtype(), 2 * int64_t{size()});
  int64_t longest = 0;
  for (size_t r = 0; r < op.send_rows.size(); ++r) {
    longest = std::max({longest, elements(op.send, op.send_rows[r]), elements(op.recv, op.recv_rows[r])});
  }
  inner_->all_reduce_max(TensorView(&longest, DType::I64, {1}));
  for (int64_t begin = 0; begin < longest; begin += quota) {
    exchange_round(op, begin, quota);
  }
}

void StagedDeviceComm::exchange_round(const AllToAllV& op, int64_t begin, int64_t quota) {
  const int64_t item = size_of(op.send.dtype());
  const auto ranks = static_cast<size_t>(size());
  std::vector<int64_t> send(ranks), recv(ranks);
  int64_t sent = 0;
  int64_t received = 0;
  for (size_t r = 0; r < ranks; ++r) {
    send[r] = std::clamp<int64_t>(elements(op.send, op.send_rows[r]) - begin, 0, quota);
    recv[r] = std::clamp<int64_t>(elements(op.recv, op.recv_rows[r]) - begin, 0, quota);
    sent += send[r];
    received += recv[r];
  }
  std::byte* const host = staging_.scratch((sent + received) * item);
  std::byte* const arrived = host + sent * item;
  // Walks the messages of all peers: in the tensor each starts behind the whole messages before it, on the host behind their parts.
  const auto walk = [&](const TensorView& tensor, std::span<const int64_t> rows, const std::vector<int64_t>& parts, std::byte* at,
                        auto&& copy) {
    int64_t first = 0;
    for (size_t r = 0; r < ranks; ++r) {
      if (parts[r] > 0) {
        copy(bytes_of(tensor) + (first + begin) * item, at, parts[r] * item);
        at += parts[r] * item;
      }
      first += elements(tensor, rows[r]);
    }
  };
  walk(op.send, op.send_rows, send, host,
       [&](std::byte* tensor, std::byte* at, int64_t bytes) { staging_.copy_down(tensor, at, bytes); });
  staging_.wait();
  inner_->all_to_all_v({.send = TensorView(host, op.send.dtype(), {sent}), .send_rows = send,
                        .recv = TensorView(arrived, op.recv.dtype(), {received}), .recv_rows = recv});
  walk(op.recv, op.recv_rows, recv, arrived,
       [&](std::byte* tensor, std::byte* at, int64_t bytes) { staging_.copy_up(at, tensor, bytes); });
  staging_.wait();
}

void StagedDeviceComm::do_all_to_all_counts(std::span<const int64_t> send_rows, std::span<int64_t> recv_rows) {
  inner_->all_to_all_counts(send_rows, recv_rows);
}

std::unique_ptr<TransferState> StagedDeviceComm::do_isend(const TensorView& values, int peer, int tag) {
  auto transfer = std::make_unique<StagedTransfer>(staging_, StagedTransfer::Direction::Send, values);
  transfer->copy_down();
  transfer->transfer = inner_->isend(transfer->host_view(), peer, tag);
  return transfer;
}

std::unique_ptr<TransferState> StagedDeviceComm::do_irecv(const TensorView& values, int peer, int tag) {
  auto transfer = std::make_unique<StagedTransfer>(staging_, StagedTransfer::Direction::Receive, values);
  transfer->transfer = inner_->irecv(transfer->host_view(), peer, tag);
  return transfer;
}

}  // namespace longhaul
