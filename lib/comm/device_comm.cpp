// See device_comm.h: arguments are checked and operations noted here, so that implementations only move data.
#include "comm/device_comm.h"

#include <algorithm>
#include <numeric>

#include "base/cast.h"
#include "comm/host_comm.h"

namespace longhaul {

namespace {

// Elements of one row: the product of all dimensions but the first.
int64_t row_elements(const TensorView& view) {
  int64_t n = 1;
  for (int d = 1; d < view.rank(); ++d) {
    n *= view.size(d);
  }
  return n;
}

}  // namespace

DeviceComm::DeviceComm(int rank, int size, DeviceKind kind, DeviceCommOptions options)
    : rank_(rank), size_(size), kind_(kind), options_(std::move(options)), writer_(options_.journal, options_.name) {
  LH_CHECK(options_.max_message_bytes >= 8 && options_.max_message_bytes <= int64_t{1} << 30,
           "max_message_bytes must be between 8 and 2^30, got {}", options_.max_message_bytes);
}

void DeviceComm::expect_tensor(std::string_view op, std::string_view argument, const TensorView& view) const {
  if (!view.is_present()) {
    throw ShapeError("{} in group {}: {} is absent", op, name(), argument);
  }
  if (!view.is_contiguous()) {
    throw ShapeError("{} in group {}: {} must be contiguous: {}", op, name(), argument, view.to_string());
  }
  if (view.device().kind != kind_) {
    throw ShapeError("{} in group {}: {} is on {}, where this communicator does not reach", op, name(), argument,
                     longhaul::to_string(view.device()));
  }
  if (view.raw() == nullptr && view.numel() > 0) {
    throw UsageError("{} in group {}: {} has no memory; communication must not be called while planning", op, name(), argument);
  }
}

void DeviceComm::expect_number(std::string_view op, const TensorView& view) const {
  const DType t = view.dtype();
  if (t != DType::F64 && t != DType::F32 && t != DType::I64 && t != DType::I32) {
    throw ShapeError("{} in group {}: cannot reduce {}; wanted f64, f32, i64 or i32", op, name(), view.to_string());
  }
}

void DeviceComm::expect_peer(std::string_view op, int peer, int tag) const {
  if (peer < 0 || peer >= size_) {
    throw UsageError("{} in group {}: there is no rank {} among {} ranks", op, name(), peer, size_);
  }
  if (tag < 0 || tag > HostComm::kMaxTag) {
    throw UsageError("{} in group {}: a tag must be in [0, {}], got {}", op, name(), HostComm::kMaxTag, tag);
  }
}

void DeviceComm::all_reduce_sum(const TensorView& values, ReduceOrder order) {
  expect_tensor("all_reduce_sum", "values", values);
  expect_number("all_reduce_sum", values);
  writer_.note("all_reduce_sum", values.bytes(), -1, [&] { do_all_reduce_sum(values, order); });
}

void DeviceComm::all_reduce_max(const TensorView& values) {
  expect_tensor("all_reduce_max", "values", values);
  expect_number("all_reduce_max", values);
  writer_.note("all_reduce_max", values.bytes(), -1, [&] { do_all_reduce_max(values); });
}

void DeviceComm::reduce_scatter_sum(const TensorView& input, const TensorView& mine) {
  expect_tensor("reduce_scatter_sum", "input", input);
  expect_tensor("reduce_scatter_sum", "mine", mine);
  expect_number("reduce_scatter_sum", input);
  if (input.dtype() != mine.dtype() || input.numel() != mine.numel() * size_) {
    throw ShapeError("reduce_scatter_sum in group {}: input {} must hold {} parts like mine {}", name(), input.to_string(), size_,
                     mine.to_string());
  }
  writer_.note("reduce_scatter_sum", input.bytes(), -1, [&] { do_reduce_scatter_sum(input, mine); });
}

void DeviceComm::all_gather(const TensorView& mine, const TensorView& all) {
  expect_tensor("all_gather", "mine", mine);
  expect_tensor("all_gather", "all", all);
  if (all.dtype() != mine.dtype() || all.numel() != mine.numel() * size_) {
    throw ShapeError("all_gather in group {}: all {} must hold {} parts like mine {}", name(), all.to_string(), size_,
                     mine.to_string());
  }
  writer_.note("all_gather", mine.bytes(), -1, [&] { do_all_gather(mine, all); });
}

void DeviceComm::broadcast(const TensorView& values, int root) {
  expect_tensor("broadcast", "values", values);
  expect_peer("broadcast", root, 0);
  writer_.note("broadcast", values.bytes(), -1, [&] { do_broadcast(values, root); });
}

void DeviceComm::all_to_all_v(const AllToAllV& op) {
  expect_tensor("all_to_all_v", "send", op.send);
  expect_tensor("all_to_all_v", "recv", op.recv);
  const auto expect_rows = [&](std::string_view argument, const TensorView& view, std::span<const int64_t> rows) {
    const bool valid = narrow<int>(rows.size()) == size_ && std::all_of(rows.begin(), rows.end(), [](int64_t n) { return n >= 0; });
    const int64_t sum = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    if (!valid || view.rank() < 1 || view.size(0) != sum) {
      throw ShapeError("all_to_all_v in group {}: {} {} must have as many rows as its {} row counts (for {} ranks, none negative) "
                       "say: {}", name(), argument, view.to_string(), rows.size(), size_, sum);
    }
  };
  expect_rows("send", op.send, op.send_rows);
  expect_rows("recv", op.recv, op.recv_rows);
  const auto self = static_cast<size_t>(rank_);
  if (op.send.dtype() != op.recv.dtype() || row_elements(op.send) != row_elements(op.recv) ||
      op.send_rows[self] != op.recv_rows[self]) {
    throw ShapeError("all_to_all_v in group {}: rows of send {} and recv {} differ, or the {} rows to itself are not the {} rows "
                     "from itself", name(), op.send.to_string(), op.recv.to_string(), op.send_rows[self], op.recv_rows[self]);
  }
  writer_.note("all_to_all_v", op.send.bytes(), -1, [&] { do_all_to_all_v(op); });
}

void DeviceComm::all_to_all_counts(std::span<const int64_t> send_rows, std::span<int64_t> recv_rows) {
  LH_CHECK(narrow<int>(send_rows.size()) == size_ && narrow<int>(recv_rows.size()) == size_,
           "{} and {} row counts for {} ranks", send_rows.size(), recv_rows.size(), size_);
  // The counts live on the host, also where the data plane does not: they always take the host's path.
  writer_.note("all_to_all_counts", narrow<int64_t>(send_rows.size_bytes()), -1,
               [&] { do_all_to_all_counts(send_rows, recv_rows); });
}

void DeviceComm::send(const TensorView& values, int peer, int tag) {
  expect_tensor("send", "values", values);
  expect_peer("send", peer, tag);
  writer_.note("send", values.bytes(), peer, [&] { do_isend(values, peer, tag)->wait(); });
}

void DeviceComm::recv(const TensorView& values, int peer, int tag) {
  expect_tensor("recv", "values", values);
  expect_peer("recv", peer, tag);
  writer_.note("recv", values.bytes(), peer, [&] { do_irecv(values, peer, tag)->wait(); });
}

PendingTransfer DeviceComm::isend(const TensorView& values, int peer, int tag) {
  expect_tensor("isend", "values", values);
  expect_peer("isend", peer, tag);
  const int64_t ticket = writer_.begin("isend", values.bytes(), peer);
  return {do_isend(values, peer, tag), options_.journal, ticket};
}

PendingTransfer DeviceComm::irecv(const TensorView& values, int peer, int tag) {
  expect_tensor("irecv", "values", values);
  expect_peer("irecv", peer, tag);
  const int64_t ticket = writer_.begin("irecv", values.bytes(), peer);
  return {do_irecv(values, peer, tag), options_.journal, ticket};
}

void DeviceComm::finish() { do_finish(); }

}  // namespace longhaul
