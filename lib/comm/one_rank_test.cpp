// Groups of one rank are real groups: SelfHostComm, LoopbackDeviceComm, and the argument checks of DeviceComm.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "comm/groups.h"
#include "comm/loopback_device_comm.h"
#include "comm/self_host_comm.h"
#include "device/gpus.h"
#include "tensor/host_copy.h"
#include "tensor/tensor.h"
#include "tests/support/compare.h"

using namespace longhaul;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("the control plane of one rank", "[comm]") {
  SelfHostComm host;
  host.barrier();
  CHECK(host.agree(true));
  CHECK_FALSE(host.agree(false));
  CHECK(host.any(true));
  CHECK_FALSE(host.any(false));
  CHECK(host.all_gather_value(7) == std::vector<int>{7});
  CHECK(host.all_gather_strings("text") == std::vector<std::string>{"text"});
  int value = 3;
  host.broadcast_value(value, 0);
  CHECK(value == 3);
  const int64_t sent = 11;
  int64_t received = 0;
  host.send_bytes(std::as_bytes(std::span(&sent, 1)), 0, 5);
  host.recv_bytes(std::as_writable_bytes(std::span(&received, 1)), 0, 5);
  CHECK(received == 11);
  CHECK_THROWS_AS(host.recv_bytes(std::as_writable_bytes(std::span(&received, 1)), 0, 5), CommError);
  CHECK_THROWS_AS(host.send_bytes({}, 1, 0), UsageError);
}

TEST_CASE("the data plane of one rank copies", "[comm]") {
  LoopbackDeviceComm comm;
  const Tensor values = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  const Tensor copy = Tensor::zeros(DType::F32, {2, 2});
  comm.all_reduce_sum(values);
  comm.all_reduce_max(values);
  comm.broadcast(values, 0);
  CHECK(values.values<float>()[3] == 4);
  comm.all_gather(values, copy);
  CHECK(copy.values<float>()[2] == 3);
  const Tensor rows = Tensor::zeros(DType::F32, {2, 2});
  const std::vector<int64_t> counts = {2};
  std::vector<int64_t> told = {0};
  comm.all_to_all_counts(counts, told);
  CHECK(told == counts);
  comm.all_to_all_v({.send = values, .send_rows = counts, .recv = rows, .recv_rows = told});
  CHECK(rows.values<float>()[1] == 2);
  const Tensor scattered = Tensor::zeros(DType::F32, {2, 2});
  comm.reduce_scatter_sum(values, scattered);
  CHECK(scattered.values<float>()[0] == 1);
}

TEST_CASE("a ring of one passes data to itself", "[comm]") {
  CommJournal journal;
  LoopbackDeviceComm comm({.name = "context", .journal = &journal});
  const Tensor sent = Tensor::from<float>({5, 6}, {2});
  const Tensor received = Tensor::zeros(DType::F32, {2});
  PendingTransfer receiving = comm.irecv(received, 0, 1);
  PendingTransfer sending = comm.isend(sent, 0, 1);
  CHECK(receiving.is_pending());
  CHECK_FALSE(journal.entries().front().finished);
  receiving.wait();
  sending.wait();
  sending.wait();  // a second time does nothing
  CHECK_FALSE(receiving.is_pending());
  CHECK(received.values<float>()[1] == 6);
  CHECK(journal.describe(8) == "  irecv context#1 peer 0 8 bytes (done)\n  isend context#2 peer 0 8 bytes (done)\n");
  CHECK_THROWS_AS(comm.irecv(received, 0, 2).wait(), CommError);
}

TEST_CASE("wrong arguments are refused before anything is sent", "[comm]") {
  CommJournal journal;
  LoopbackDeviceComm comm({.name = "loss", .journal = &journal});
  const Tensor floats = Tensor::zeros(DType::F32, {4, 4});
  const Tensor bytes = Tensor::zeros(DType::U8, {4});
  CHECK_THROWS_MATCHES(comm.all_reduce_sum(floats.view().slice(1, 0, 2)), ShapeError,
                       MessageMatches(ContainsSubstring("all_reduce_sum in group loss: values must be contiguous")));
  CHECK_THROWS_AS(comm.all_reduce_sum(bytes), ShapeError);
  CHECK_THROWS_AS(comm.all_reduce_sum(TensorView{}), ShapeError);
  CHECK_THROWS_AS(comm.all_reduce_sum(TensorView(nullptr, DType::F32, {4})), UsageError);  // a view of a plan
  CHECK_THROWS_AS(comm.all_reduce_sum(TensorView(floats.view().raw(), DType::F32, {4}, {DeviceKind::Cuda, 0})), ShapeError);
  CHECK_THROWS_AS(comm.all_gather(bytes, floats), ShapeError);
  CHECK_THROWS_AS(comm.broadcast(floats, 1), UsageError);
  CHECK_THROWS_AS(comm.send(floats, 0, HostComm::kMaxTag + 1), UsageError);
  const std::vector<int64_t> three = {3};
  const std::vector<int64_t> four = {4};
  const auto exchange = [&](const std::vector<int64_t>& send_rows, const std::vector<int64_t>& recv_rows) {
    comm.all_to_all_v({.send = floats, .send_rows = send_rows, .recv = floats, .recv_rows = recv_rows});
  };
  CHECK_THROWS_AS(exchange(three, four), ShapeError);
  CHECK_THROWS_AS(exchange(four, three), ShapeError);
  CHECK_THROWS_AS(exchange(four, {4, 0}), ShapeError);
  CHECK_THROWS_AS(exchange({-4}, four), ShapeError);
  CHECK(journal.entries().empty());
}

TEST_CASE("all groups of a world of one rank exist and have one rank", "[comm]") {
  SelfHostComm world;
  const Groups groups = Groups::create(world, ParallelGrid::create({}, 1));
  for (const GroupKind kind : kGroupKinds) {
    const Group& group = groups.of(kind);
    CHECK(group.name == to_string(kind));
    CHECK(group.size == 1);
    CHECK(group.is_first());
    CHECK(group.is_last());
    CHECK(group.host.agree(true));
    CHECK(group.device.size() == 1);
    CHECK(&group.host_data == &group.device);
  }
}

TEST_CASE("groups for a GPU need its context", "[comm]") {
  SelfHostComm world;
  const ParallelGrid grid = ParallelGrid::create({}, 1);
  CHECK_THROWS_AS(Groups::create(world, grid, {.data_plane = DataPlane::Staged}), InternalError);
  CHECK_THROWS_AS(Groups::create(world, grid, {.data_plane = DataPlane::Nccl}), InternalError);
}

TEST_CASE("one rank on a GPU copies on its stream and passes messages to itself", "[comm][cuda]") {
  if (find_gpus().empty()) {
    SKIP("no GPU");
  }
  const Device gpu{DeviceKind::Cuda, 0};
  CudaContext cuda(gpu);
  SelfHostComm world;
  Groups groups = Groups::create(world, ParallelGrid::create({}, 1), {.data_plane = DataPlane::Nccl, .cuda = &cuda});
  DeviceComm& comm = groups.expert.device;
  const Tensor host = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  const Tensor values = copy_to(host, gpu);
  const auto expect_copied = [&](auto&& copy) {
    const Tensor target = copy_to(Tensor::zeros(DType::F32, {2, 2}), gpu);
    copy(target.view());
    cuda.stream().synchronize();
    CHECK(longhaul::testing::bitwise_equal(HostCopy(target).view(), host));
  };
  const std::vector<int64_t> rows = {2};
  expect_copied([&](const TensorView& to) { comm.all_gather(values, to); });
  expect_copied([&](const TensorView& to) { comm.reduce_scatter_sum(values, to); });
  expect_copied([&](const TensorView& to) { comm.all_to_all_v({.send = values, .send_rows = rows, .recv = to, .recv_rows = rows}); });
  expect_copied([&](const TensorView& to) {
    PendingTransfer sending = comm.isend(values, 0, 1);
    comm.recv(to, 0, 1);
    sending.wait();
  });
  CHECK_THROWS_AS(comm.all_reduce_sum(host), ShapeError);  // of the CPU
  groups.expert.host_data.all_reduce_sum(host);
  groups.finish();
}
