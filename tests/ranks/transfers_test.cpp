// Messages between two ranks over MPI: crossing, in order, of any size, of the wrong size, and dropped.
#include "comm/device_comm.h"
#include "tensor/tensor.h"
#include "tests/support/compare.h"
#include "tests/support/rank_checks.h"
#include "tests/support/rank_comms.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("crossing sends of any size do not deadlock and keep their order", "[comm][np2][np3][np4]") {
  HostComm& world = rank_world();
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  const auto comms = comms_of_all_sizes();
  for (const auto& comm : comms) {
    // Far above any eager limit with ordinary messages; small where messages are cut into a few bytes.
    const int64_t n = comm == comms.front() ? int64_t{1} << 20 : 100;
    std::vector<Tensor> sent;
    std::vector<Tensor> received;
    std::vector<PendingTransfer> transfers;
    for (int i = 0; i < 3; ++i) {
      sent.push_back(Tensor::from(std::vector<float>(static_cast<size_t>(n), static_cast<float>(10 * world.rank() + i)), {n}));
      received.push_back(Tensor::zeros(DType::F32, {n}));
    }
    // Every rank sends first, both ways round the ring, with one tag for two messages.
    transfers.push_back(comm->isend(sent[0], next, 1));
    transfers.push_back(comm->isend(sent[1], next, 1));
    transfers.push_back(comm->isend(sent[2], previous, 2));
    transfers.push_back(comm->irecv(received[0], previous, 1));
    transfers.push_back(comm->irecv(received[1], previous, 1));
    transfers.push_back(comm->irecv(received[2], next, 2));
    for (PendingTransfer& transfer : transfers) {
      transfer.wait();
    }
    const auto check = [&](int i, int peer) {
      CHECK(bitwise_equal(received[static_cast<size_t>(i)],
                          Tensor::from(std::vector<float>(static_cast<size_t>(n), static_cast<float>(10 * peer + i)), {n})));
    };
    check(0, previous);
    check(1, previous);
    check(2, next);
  }
}

TEST_CASE("blocking send and recv form a chain, also of nothing", "[comm][np2][np3][np4]") {
  HostComm& world = rank_world();
  for (const auto& comm : comms_of_all_sizes()) {
    for (const int64_t n : {0, 1, 77}) {
      const Tensor values = Tensor::zeros(DType::I64, {n});
      if (world.rank() > 0) {
        comm->recv(values, world.rank() - 1, 4);
      }
      for (int64_t& value : values.values<int64_t>()) {
        value += 1;
      }
      if (world.rank() + 1 < world.size()) {
        comm->send(values, world.rank() + 1, 4);
      }
      CHECK(bitwise_equal(values, Tensor::from(std::vector<int64_t>(static_cast<size_t>(n), world.rank() + 1), {n})));
    }
  }
}

TEST_CASE("a transfer of another size than agreed is an error", "[comm][np2]") {
  HostComm& world = rank_world();
  const auto comm = world.make_cpu_device_comm({.name = "test", .journal = &rank_journal()});
  for (const int64_t wanted : {3, 5}) {  // shorter and longer than the message
    if (world.rank() == 0) {
      comm->send(Tensor::zeros(DType::F32, {4}), 1, 0);
      world.barrier();
    } else {
      world.barrier();  // the message is there before the receive, the case in which MPI_Waitall may hang
      CHECK_THROWS_AS(comm->recv(Tensor::zeros(DType::F32, {wanted}), 0, 0), CommError);
    }
  }
}

TEST_CASE("a dropped transfer does not block", "[comm][np2]") {
  const auto comm = rank_world().make_cpu_device_comm({.name = "test", .journal = &rank_journal()});
  const Tensor values = Tensor::zeros(DType::F32, {4});
  { const PendingTransfer never = comm->irecv(values, 1 - rank_world().rank(), 3); }
  CHECK(rank_world().agree(true));
}

TEST_CASE("control and data planes of one group do not mix their messages", "[comm][np2]") {
  HostComm& world = rank_world();
  const auto first = world.make_cpu_device_comm({.name = "first"});
  const auto second = world.make_cpu_device_comm({.name = "second"});
  const int peer = 1 - world.rank();
  const Tensor one = Tensor::from<int32_t>({1}, {1});
  const Tensor two = Tensor::from<int32_t>({2}, {1});
  const Tensor got_first = Tensor::zeros(DType::I32, {1});
  const Tensor got_second = Tensor::zeros(DType::I32, {1});
  PendingTransfer a = second->isend(two, peer, 0);
  PendingTransfer b = first->isend(one, peer, 0);
  first->recv(got_first, peer, 0);
  second->recv(got_second, peer, 0);
  a.wait();
  b.wait();
  CHECK(got_first.values<int32_t>()[0] == 1);
  CHECK(got_second.values<int32_t>()[0] == 2);
}
