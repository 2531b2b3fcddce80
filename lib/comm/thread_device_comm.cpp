// See thread_device_comm.h.
#include "comm/thread_device_comm.h"

#include <algorithm>
#include <cstring>

#include "base/cast.h"
#include "comm/reduce_ops.h"

namespace longhaul {

namespace {

std::span<const std::byte> bytes_of(const TensorView& view) {
  return {static_cast<const std::byte*>(view.raw()), narrow<size_t>(view.bytes())};
}

void expect_bytes(const ThreadHub::Bytes& part, const TensorView& view, size_t rank) {
  if (narrow<int64_t>(part.size()) != view.bytes()) {
    throw CommError("rank {} sent {} bytes where {} were wanted; sender and receiver disagree about a shape", rank, part.size(),
                    view.bytes());
  }
}

class DoneTransfer final : public TransferState {
 public:
  void wait() override {}
};

class ThreadReceive final : public TransferState {
 public:
  ThreadReceive(ThreadHub& hub, std::string channel, const Mailbox::Key& key, const TensorView& values)
      : hub_(hub), channel_(std::move(channel)), key_(key), values_(values) {}
  void wait() override {
    const ThreadHub::Bytes letter = hub_.take(channel_, key_);
    expect_bytes(letter, values_, static_cast<size_t>(key_.from));
    std::copy(letter.begin(), letter.end(), static_cast<std::byte*>(values_.raw()));
  }

 private:
  ThreadHub& hub_;
  std::string channel_;
  Mailbox::Key key_;
  TensorView values_;
};

}  // namespace

std::vector<ThreadHub::Bytes> ThreadDeviceComm::exchange(std::span<const std::byte> mine) {
  return hub_.exchange(seat_, ++rounds_, mine);
}

template <class Combine>
void ThreadDeviceComm::combine(const TensorView& input, int64_t first, const TensorView& out, Combine&& combine_two) {
  const std::vector<ThreadHub::Bytes> parts = exchange(bytes_of(input));
  detail::with_numbers(out, [&](auto* result) {
    using T = std::remove_pointer_t<decltype(result)>;
    for (size_t r = 0; r < parts.size(); ++r) {
      expect_bytes(parts[r], input, r);
      const T* part = reinterpret_cast<const T*>(parts[r].data()) + first;
      for (int64_t i = 0; i < out.numel(); ++i) {
        result[i] = r == 0 ? part[i] : combine_two(result[i], part[i]);
      }
    }
  });
}

void ThreadDeviceComm::do_all_reduce_sum(const TensorView& values, ReduceOrder) { combine(values, 0, values, detail::Sum{}); }

void ThreadDeviceComm::do_all_reduce_max(const TensorView& values) { combine(values, 0, values, detail::MaxOrNan{}); }

void ThreadDeviceComm::do_reduce_scatter_sum(const TensorView& input, const TensorView& mine) {
  combine(input, mine.numel() * rank(), mine, detail::Sum{});
}

void ThreadDeviceComm::do_all_gather(const TensorView& mine, const TensorView& all) {
  const std::vector<ThreadHub::Bytes> parts = exchange(bytes_of(mine));
  auto* target = static_cast<std::byte*>(all.raw());
  for (size_t r = 0; r < parts.size(); ++r) {
    expect_bytes(parts[r], mine, r);
    target = std::copy(parts[r].begin(), parts[r].end(), target);
  }
}

void ThreadDeviceComm::do_broadcast(const TensorView& values, int root) {
  const std::vector<ThreadHub::Bytes> parts = exchange(rank() == root ? bytes_of(values) : std::span<const std::byte>());
  const ThreadHub::Bytes& from_root = parts[static_cast<size_t>(root)];
  expect_bytes(from_root, values, static_cast<size_t>(root));
  std::copy(from_root.begin(), from_root.end(), static_cast<std::byte*>(values.raw()));
}

void ThreadDeviceComm::do_all_to_all_v(const AllToAllV& op) {
  // Counts first, then the rows: a receiver finds its part behind those of lower ranks.
  const std::vector<ThreadHub::Bytes> counts = exchange(std::as_bytes(op.send_rows));
  const std::vector<ThreadHub::Bytes> parts = exchange(bytes_of(op.send));
  int64_t row_bytes = size_of(op.send.dtype());
  for (int d = 1; d < op.send.rank(); ++d) {
    row_bytes *= op.send.size(d);
  }
  auto* target = static_cast<std::byte*>(op.recv.raw());
  for (size_t r = 0; r < parts.size(); ++r) {
    std::vector<int64_t> rows(static_cast<size_t>(size()));
    std::memcpy(rows.data(), counts[r].data(), counts[r].size());
    const int64_t mine = rows[static_cast<size_t>(rank())];
    if (mine != op.recv_rows[r]) {
      throw CommError("all_to_all_v in group {}: rank {} sends {} rows, rank {} expects {}", name(), r, mine, rank(), op.recv_rows[r]);
    }
    int64_t first = 0;
    for (int lower = 0; lower < rank(); ++lower) {
      first += rows[static_cast<size_t>(lower)];
    }
    target = std::copy_n(parts[r].data() + first * row_bytes, mine * row_bytes, target);
  }
}

void ThreadDeviceComm::do_all_to_all_counts(std::span<const int64_t> send_rows, std::span<int64_t> recv_rows) {
  const std::vector<ThreadHub::Bytes> parts = exchange(std::as_bytes(send_rows));
  for (size_t r = 0; r < parts.size(); ++r) {
    std::memcpy(&recv_rows[r], parts[r].data() + sizeof(int64_t) * static_cast<size_t>(rank()), sizeof(int64_t));
  }
}

std::unique_ptr<TransferState> ThreadDeviceComm::do_isend(const TensorView& values, int peer, int tag) {
  hub_.post(seat_.channel, {.from = rank(), .to = peer, .tag = tag}, bytes_of(values));
  return std::make_unique<DoneTransfer>();
}

std::unique_ptr<TransferState> ThreadDeviceComm::do_irecv(const TensorView& values, int peer, int tag) {
  return std::make_unique<ThreadReceive>(hub_, seat_.channel, Mailbox::Key{.from = peer, .to = rank(), .tag = tag}, values);
}

}  // namespace longhaul
