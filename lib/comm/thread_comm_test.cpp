// Ranks as threads: the collectives of both planes, and what happens when a rank fails or never comes.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <limits>

#include "comm/groups.h"
#include "comm/thread_host_comm.h"
#include "tensor/tensor.h"

using namespace longhaul;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("threads gather, broadcast, agree and pass messages", "[comm]") {
  for (const int size : {1, 2, 5}) {
    run_ranks(size, [&](HostComm& host, int rank) {
      const std::vector<std::string> texts = host.all_gather_strings(std::string(static_cast<size_t>(rank), 'x'));
      for (int r = 0; r < size; ++r) {
        LH_CHECK(texts[static_cast<size_t>(r)] == std::string(static_cast<size_t>(r), 'x'), "text of rank {}", r);
      }
      std::string word = rank == size - 1 ? "last" : "";
      host.broadcast_string(word, size - 1);
      LH_CHECK(word == "last", "got {}", word);
      LH_CHECK(host.agree(true), "all are true");
      LH_CHECK(host.agree(rank != 0) == false, "rank 0 is false");
      LH_CHECK(host.any(rank == size - 1), "the last is true");
      LH_CHECK(!host.any(false), "none is true");
      const int next = (rank + 1) % size;
      const int previous = (rank + size - 1) % size;
      int got = -1;
      host.send_bytes(std::as_bytes(std::span(&rank, 1)), next, 3);
      host.recv_bytes(std::as_writable_bytes(std::span(&got, 1)), previous, 3);
      LH_CHECK(got == previous, "got {} from {}", got, previous);
      host.barrier();
    });
  }
}

TEST_CASE("threads split by color and order by key", "[comm]") {
  run_ranks(6, [](HostComm& host, int rank) {
    const auto child = host.split(rank % 2, -rank, "half");
    LH_CHECK(child->size() == 3 && child->rank() == 2 - rank / 2, "rank {} is {} of {}", rank, child->rank(), child->size());
    const std::vector<int> members = child->all_gather_value(rank);
    LH_CHECK(members == (std::vector{4 + rank % 2, 2 + rank % 2, rank % 2}), "the order is that of the keys");
  });
}

TEST_CASE("threads reduce, scatter and exchange rows", "[comm]") {
  constexpr int kSize = 3;
  run_ranks(kSize, [](HostComm& host, int rank) {
    const auto comm = host.make_cpu_device_comm({.name = "test"});
    const Tensor sum = Tensor::from<int64_t>({rank, 10 * rank}, {2});
    comm->all_reduce_sum(sum);
    LH_CHECK(sum.values<int64_t>()[0] == 3 && sum.values<int64_t>()[1] == 30, "sum");
    const Tensor largest = Tensor::from<double>({double(rank), rank == 1 ? std::numeric_limits<double>::quiet_NaN() : 0.0}, {2});
    comm->all_reduce_max(largest);
    LH_CHECK(largest.values<double>()[0] == 2 && std::isnan(largest.values<double>()[1]), "largest");
    const Tensor part = Tensor::zeros(DType::F32, {1});
    comm->reduce_scatter_sum(Tensor::from<float>({1, 2, 3}, {3}), part);
    LH_CHECK(part.values<float>()[0] == 3.0f * static_cast<float>(rank + 1), "part");
    const Tensor all = Tensor::zeros(DType::F32, {3});
    comm->all_gather(part, all);
    LH_CHECK(all.values<float>()[2] == 9, "gathered");
    // Rank r sends r rows to each other rank and none to itself.
    std::vector<int64_t> send_rows(kSize, rank);
    send_rows[static_cast<size_t>(rank)] = 0;
    std::vector<int64_t> recv_rows(kSize);
    comm->all_to_all_counts(send_rows, recv_rows);
    const int64_t sent = 2 * rank;
    const int64_t received = recv_rows[0] + recv_rows[1] + recv_rows[2];
    LH_CHECK(received == 3 - rank, "received {}", received);
    const Tensor send = Tensor::from(std::vector<int32_t>(static_cast<size_t>(sent * 2), 100 * rank), {sent, 2});
    const Tensor recv = Tensor::zeros(DType::I32, {received, 2});
    comm->all_to_all_v({.send = send, .send_rows = send_rows, .recv = recv, .recv_rows = recv_rows});
    size_t at = 0;
    for (int r = 0; r < kSize; ++r) {
      for (int64_t i = 0; i < 2 * recv_rows[static_cast<size_t>(r)]; ++i) {
        LH_CHECK(recv.values<int32_t>()[at++] == 100 * r, "row from rank {}", r);
      }
    }
  });
}

TEST_CASE("threads send to each other at the same time", "[comm]") {
  run_ranks(2, [](HostComm& host, int rank) {
    const auto comm = host.make_cpu_device_comm({});
    const Tensor mine = Tensor::from<float>({static_cast<float>(rank)}, {1});
    const Tensor theirs = Tensor::zeros(DType::F32, {1});
    PendingTransfer sending = comm->isend(mine, 1 - rank, 0);
    PendingTransfer receiving = comm->irecv(theirs, 1 - rank, 0);
    receiving.wait();
    sending.wait();
    LH_CHECK(theirs.values<float>()[0] == static_cast<float>(1 - rank), "the other's value");
  });
}

TEST_CASE("threads form the groups of a grid", "[comm]") {
  run_ranks(8, [](HostComm& host, int rank) {
    const ParallelGrid grid = ParallelGrid::create({.pipeline = 2, .data = 2, .context = 2, .expert = 4}, 8);
    const Groups groups = Groups::create(host, grid);
    for (const GroupKind kind : kGroupKinds) {
      LH_CHECK(groups.of(kind).host.all_gather_value(rank) == grid.group_ranks(kind, rank), "members of {}", to_string(kind));
    }
  });
}

TEST_CASE("the cause of a failure is thrown, not its consequences", "[comm]") {
  CHECK_THROWS_MATCHES(run_ranks(3,
                                 [](HostComm& host, int rank) {
                                   if (rank == 2) {
                                     throw DataError("rank 2 cannot read");
                                   }
                                   host.barrier();
                                 }),
                       DataError, MessageMatches(ContainsSubstring("rank 2 cannot read")));
}

TEST_CASE("a rank that never comes fails the others in time", "[comm]") {
  CHECK_THROWS_MATCHES(run_ranks(
                           2,
                           [](HostComm& host, int rank) {
                             if (rank == 0) {
                               host.barrier();
                             }
                           },
                           std::chrono::milliseconds(50)),
                       PeerFailedError, MessageMatches(ContainsSubstring("another rank never came")));
}

TEST_CASE("row counts that do not match are refused", "[comm]") {
  CHECK_THROWS_AS(run_ranks(2,
                            [](HostComm& host, int rank) {
                              const auto comm = host.make_cpu_device_comm({});
                              const std::vector<int64_t> send_rows = {rank == 0 ? 0 : 1, rank == 0 ? 1 : 0};
                              const std::vector<int64_t> recv_rows = {0, 0};
                              comm->all_to_all_v({.send = Tensor::zeros(DType::F32, {1, 4}),
                                                  .send_rows = send_rows,
                                                  .recv = Tensor::zeros(DType::F32, {0, 4}),
                                                  .recv_rows = recv_rows});
                            }),
                  CommError);
}
