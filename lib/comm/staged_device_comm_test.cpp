// Staging without a GPU: ranks as threads, tensors in the host's memory, staging memory from one element to everything. What is
// staged must equal what the inner communicator does itself, bit by bit.
#include "comm/staged_device_comm.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/philox.h"
#include "comm/thread_host_comm.h"
#include "tensor/tensor.h"
#include "tests/support/compare.h"

using namespace longhaul;
using longhaul::testing::bitwise_equal;

namespace {

// Of widely different size, so that sums depend on their order.
Tensor random_tensor(int rank, const Shape& shape) {
  const RandomStream random{.seed = 3, .stream = static_cast<uint64_t>(rank)};
  Tensor tensor(DType::F32, shape);
  uint64_t i = 0;
  for (float& value : tensor.values<float>()) {
    value = static_cast<float>(random.normal(i) * std::exp2(random.uniform(i + 1000) * 20));
    ++i;
  }
  return tensor;
}

Tensor copy_of(const Tensor& tensor) { return Tensor::from<float>(tensor.values<float>(), tensor.view().shape()); }

// fn(staged, plain, rank) on `size` ranks for several amounts of staging memory.
template <class Fn>
void compare_with_plain(int size, Fn&& fn) {
  run_ranks(size, [&](HostComm& host, int rank) {
    const auto plain = host.make_cpu_device_comm({.name = "plain"});
    for (const int64_t staging_bytes : {int64_t{1}, int64_t{40}, int64_t{100}, StagedDeviceComm::kStagingBytes}) {
      StagedDeviceComm staged(host.make_cpu_device_comm({.name = "inner"}), nullptr, {.name = "staged"}, staging_bytes);
      fn(staged, *plain, rank);
    }
  });
}

}  // namespace

TEST_CASE("staged reductions are those of the inner communicator", "[comm]") {
  for (const int size : {1, 3, 4}) {
    compare_with_plain(size, [&](DeviceComm& staged, DeviceComm& plain, int rank) {
      for (const int64_t n : {0, 1, 37}) {
        const Tensor mine = random_tensor(rank, {n});
        const Tensor sum = copy_of(mine), wanted_sum = copy_of(mine);
        staged.all_reduce_sum(sum, ReduceOrder::Fixed);
        plain.all_reduce_sum(wanted_sum, ReduceOrder::Fixed);
        LH_CHECK(bitwise_equal(sum, wanted_sum), "sum of {}", n);
        const Tensor most = copy_of(mine), wanted_most = copy_of(mine);
        if (rank == 0 && n > 1) {
          most.values<float>()[1] = wanted_most.values<float>()[1] = std::numeric_limits<float>::quiet_NaN();
        }
        staged.all_reduce_max(most);
        plain.all_reduce_max(wanted_most);
        LH_CHECK(bitwise_equal(most, wanted_most), "maximum of {}", n);
        const Tensor all = random_tensor(rank, {n * size});
        const Tensor part(DType::F32, {n}), wanted_part(DType::F32, {n});
        staged.reduce_scatter_sum(all, part);
        plain.reduce_scatter_sum(all, wanted_part);
        LH_CHECK(bitwise_equal(part, wanted_part), "scattered sum of {}", n);
      }
    });
  }
}

TEST_CASE("staged gathers and broadcasts cross pieces", "[comm]") {
  constexpr int kSize = 3;
  compare_with_plain(kSize, [](DeviceComm& staged, DeviceComm& plain, int rank) {
    const Tensor mine = random_tensor(rank, {7, 3});
    const Tensor all(DType::F32, {21, 3}), wanted(DType::F32, {21, 3});
    staged.all_gather(mine, all);
    plain.all_gather(mine, wanted);
    LH_CHECK(bitwise_equal(all, wanted), "gathered");
    const Tensor in_place = Tensor::zeros(DType::F32, {21, 3});
    const TensorView own = in_place.view().slice(0, 7 * rank, 7 * (rank + 1));
    std::memcpy(own.raw(), mine.view().raw(), static_cast<size_t>(own.bytes()));
    staged.all_gather(own, in_place);
    LH_CHECK(bitwise_equal(in_place, wanted), "gathered in place");
    for (int root = 0; root < kSize; ++root) {
      const Tensor values = Tensor::from(std::vector<uint8_t>(250, static_cast<uint8_t>(rank)), {250});
      staged.broadcast(values, root);
      LH_CHECK(bitwise_equal(values, Tensor::from(std::vector<uint8_t>(250, static_cast<uint8_t>(root)), {250})), "of {}", root);
    }
  });
}

TEST_CASE("staged rows of uneven number reach their places, cut anywhere", "[comm]") {
  constexpr int kSize = 4;
  // Row counts from rank to rank; each case has ranks that give or get nothing.
  const std::vector<std::vector<int64_t>> cases = {{0, 5, 1, 0, 2, 0, 0, 9, 0, 0, 0, 0, 3, 1, 4, 1},
                                                   {3, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0},
                                                   std::vector<int64_t>(16, 0)};
  for (const std::vector<int64_t>& counts : cases) {
    compare_with_plain(kSize, [&](DeviceComm& staged, DeviceComm& plain, int rank) {
      std::vector<int64_t> send_rows(kSize), recv_rows(kSize);
      int64_t sent = 0, received = 0;
      for (int r = 0; r < kSize; ++r) {
        sent += send_rows[static_cast<size_t>(r)] = counts[static_cast<size_t>(rank * kSize + r)];
        received += counts[static_cast<size_t>(r * kSize + rank)];
      }
      staged.all_to_all_counts(send_rows, recv_rows);
      const Tensor send = random_tensor(rank, {sent, 5});
      const Tensor recv(DType::F32, {received, 5}), wanted(DType::F32, {received, 5});
      staged.all_to_all_v({.send = send, .send_rows = send_rows, .recv = recv, .recv_rows = recv_rows});
      plain.all_to_all_v({.send = send, .send_rows = send_rows, .recv = wanted, .recv_rows = recv_rows});
      LH_CHECK(bitwise_equal(recv, wanted), "rows of rank {}", rank);
    });
  }
}

TEST_CASE("staged transfers keep their order, and their memory is used again", "[comm]") {
  constexpr int kSize = 3;
  compare_with_plain(kSize, [](DeviceComm& staged, DeviceComm&, int rank) {
    const int next = (rank + 1) % kSize, previous = (rank + kSize - 1) % kSize;
    for (int round = 0; round < 3; ++round) {
      std::vector<PendingTransfer> transfers;
      std::vector<Tensor> got;
      for (const int64_t n : {10, 0, 10, 4}) {
        Tensor mine = random_tensor(10 * rank + round, {n});
        transfers.push_back(staged.isend(mine, next, 1));
        // The data were copied, so the memory may go; what is promised is less.
      }
      for (const int64_t n : {10, 0, 10, 4}) {
        got.emplace_back(DType::F32, Shape{n});
        transfers.push_back(staged.irecv(got.back(), previous, 1));
      }
      for (PendingTransfer& transfer : transfers) {
        transfer.wait();
      }
      for (const Tensor& tensor : got) {
        LH_CHECK(bitwise_equal(tensor, random_tensor(10 * previous + round, tensor.view().shape())), "round {}", round);
      }
    }
    { const PendingTransfer dropped = staged.isend(random_tensor(0, {5}), next, 2); }
  });
}
