// The data planes for GPUs on 1 to 4 ranks: each collective against its definition. Values are small integers, so that sums are
// exact in any order and every plane must give the same bits. Where there is no GPU, staging alone is tested, on the host.
#include <catch2/catch_template_test_macros.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/cast.h"
#include "comm/groups.h"
#include "tests/support/compare.h"
#include "tests/support/device_planes.h"

using namespace longhaul;
using namespace longhaul::testing;

namespace {

template <class T>
T value_of(int rank, int64_t i) {
  return static_cast<T>((i * 13 + rank * 29 + rank * i) % 101 - 50);
}

// fn(i) for i in [0, n).
template <class T, class Fn>
Tensor filled(int64_t n, Fn&& fn) {
  Tensor tensor(kDTypeOf<T>, {n});
  for (int64_t i = 0; i < n; ++i) {
    tensor.values<T>()[static_cast<size_t>(i)] = fn(i);
  }
  return tensor;
}

template <class T>
Tensor sum_over_ranks(int64_t n) {
  return filled<T>(n, [](int64_t i) {
    T sum = 0;
    for (int rank = 0; rank < rank_world().size(); ++rank) {
      sum += value_of<T>(rank, i);
    }
    return sum;
  });
}

int64_t rows_between(int from, int to) { return (from * 3 + to * 5 + 1) % 4; }

}  // namespace

TEMPLATE_TEST_CASE("every plane sums, takes the largest and scatters", "[comm][cuda][np1][np2][np3][np4]", float, double, int32_t,
                   int64_t) {
  HostComm& world = rank_world();
  for (const DevicePlane& plane : DevicePlanes(NcclChannels::None)) {
    INFO(plane.name);
    for (const int64_t n : {0, 1, 1001}) {
      const Tensor mine = filled<TestType>(n, [&](int64_t i) { return value_of<TestType>(world.rank(), i); });
      const Tensor sum = plane.up(mine);
      plane.comm->all_reduce_sum(sum);
      CHECK(bitwise_equal(plane.down(sum), sum_over_ranks<TestType>(n)));
      const Tensor most = plane.up(mine);
      plane.comm->all_reduce_max(most);
      CHECK(bitwise_equal(plane.down(most), filled<TestType>(n, [&](int64_t i) {
              TestType largest = value_of<TestType>(0, i);
              for (int rank = 1; rank < world.size(); ++rank) {
                largest = std::max(largest, value_of<TestType>(rank, i));
              }
              return largest;
            })));
      const Tensor all = plane.up(filled<TestType>(n * world.size(), [&](int64_t i) { return value_of<TestType>(world.rank(), i); }));
      const Tensor part = plane.up(Tensor::zeros(kDTypeOf<TestType>, {n}));
      plane.comm->reduce_scatter_sum(all, part);
      const Tensor whole = sum_over_ranks<TestType>(n * world.size());
      CHECK(bitwise_equal(plane.down(part), whole.view().slice(0, n * world.rank(), n * (world.rank() + 1))));
    }
  }
}

TEST_CASE("every plane keeps NaN in the largest value", "[comm][cuda][np1][np2][np4]") {
  HostComm& world = rank_world();
  for (const DevicePlane& plane : DevicePlanes(NcclChannels::None)) {
    INFO(plane.name);
    const bool is_last = world.rank() == world.size() - 1;
    const Tensor values = plane.up(Tensor::from<float>({1, is_last ? std::numeric_limits<float>::quiet_NaN() : 5, -3}, {3}));
    plane.comm->all_reduce_max(values);
    const Tensor got = plane.down(values);
    CHECK(got.values<float>()[0] == 1);
    CHECK(std::isnan(got.values<float>()[1]));
    CHECK(got.values<float>()[2] == -3);
  }
}

TEST_CASE("every plane gathers and broadcasts any type", "[comm][cuda][np1][np2][np3][np4]") {
  HostComm& world = rank_world();
  for (const DevicePlane& plane : DevicePlanes(NcclChannels::None)) {
    INFO(plane.name);
    for (const int64_t n : {0, 1, 333}) {
      const auto part_of = [&](int rank) { return filled<uint8_t>(n, [&](int64_t i) { return value_of<uint8_t>(rank, i); }); };
      const Tensor all = plane.up(Tensor::zeros(DType::U8, {n * world.size()}));
      plane.comm->all_gather(plane.up(part_of(world.rank())), all);
      const Tensor wanted = filled<uint8_t>(n * world.size(), [&](int64_t i) { return value_of<uint8_t>(narrow<int>(i / n), i % n); });
      CHECK(bitwise_equal(plane.down(all), wanted));
      plane.comm->all_gather(all.view().slice(0, n * world.rank(), n * (world.rank() + 1)), all);
      CHECK(bitwise_equal(plane.down(all), wanted));
      for (int root = 0; root < world.size(); ++root) {
        const Tensor values = plane.up(part_of(world.rank()));
        plane.comm->broadcast(values, root);
        CHECK(bitwise_equal(plane.down(values), part_of(root)));
      }
    }
  }
}

TEST_CASE("every plane moves uneven rows, and none", "[comm][cuda][np1][np2][np3][np4]") {
  HostComm& world = rank_world();
  const auto ranks = static_cast<size_t>(world.size());
  for (const DevicePlane& plane : DevicePlanes(NcclChannels::None)) {
    INFO(plane.name);
    for (const int64_t width : {5, 4000}) {
      for (const bool all_to_zero : {false, true}) {
        const auto rows = [&](int from, int to) { return all_to_zero ? (to == 0 ? int64_t{3} : 0) : rows_between(from, to); };
        std::vector<int64_t> send_rows(ranks), recv_rows(ranks, -1);
        std::vector<int32_t> send, wanted;
        for (int peer = 0; peer < world.size(); ++peer) {
          send_rows[static_cast<size_t>(peer)] = rows(world.rank(), peer);
          for (int64_t i = 0; i < rows(world.rank(), peer) * width; ++i) {
            send.push_back(narrow<int32_t>(100000 * (4 * world.rank() + peer) + i));
          }
          for (int64_t i = 0; i < rows(peer, world.rank()) * width; ++i) {
            wanted.push_back(narrow<int32_t>(100000 * (4 * peer + world.rank()) + i));
          }
        }
        plane.comm->all_to_all_counts(send_rows, recv_rows);
        const Tensor from = plane.up(Tensor::from(send, {narrow<int64_t>(send.size()) / width, width}));
        const Tensor to = plane.up(Tensor::zeros(DType::I32, {narrow<int64_t>(wanted.size()) / width, width}));
        plane.comm->all_to_all_v({.send = from, .send_rows = send_rows, .recv = to, .recv_rows = recv_rows});
        CHECK(bitwise_equal(plane.down(to), Tensor::from(wanted, to.view().shape())));
      }
    }
  }
}

TEST_CASE("every plane passes data around a ring both ways", "[comm][cuda][np1][np2][np3][np4]") {
  HostComm& world = rank_world();
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  for (const DevicePlane& plane : DevicePlanes()) {
    INFO(plane.name);
    for (const int64_t n : {0, 3, 1 << 20}) {  // 4 MiB: more than any plane sends ahead
      const auto of = [&](int rank, int way) {
        return filled<int32_t>(n, [&](int64_t i) { return narrow<int32_t>(i) * 8 + rank * 2 + way; });
      };
      Tensor forward = plane.up(of(world.rank(), 0)), backward = plane.up(of(world.rank(), 1));
      for (int step = 0; step < world.size(); ++step) {  // after as many steps each part is at home again
        Tensor arrived = plane.up(Tensor::zeros(DType::I32, {n})), returned = plane.up(Tensor::zeros(DType::I32, {n}));
        std::vector<PendingTransfer> transfers;
        transfers.push_back(plane.comm->isend(forward, next, 0));
        transfers.push_back(plane.comm->irecv(arrived, previous, 0));
        transfers.push_back(plane.comm->isend(backward, previous, 1));
        transfers.push_back(plane.comm->irecv(returned, next, 1));
        for (PendingTransfer& transfer : transfers) {
          transfer.wait();
        }
        plane.comm->finish();
        std::swap(forward, arrived);
        std::swap(backward, returned);
        const int steps = step + 1;
        CHECK(bitwise_equal(plane.down(forward), of((world.rank() + steps * (world.size() - 1)) % world.size(), 0)));
        CHECK(bitwise_equal(plane.down(backward), of((world.rank() + steps) % world.size(), 1)));
      }
    }
  }
}

TEST_CASE("every plane carries a pipeline in which both neighbours send first", "[comm][cuda][np2][np3][np4]") {
  HostComm& world = rank_world();
  constexpr int kMicroBatches = 6;
  constexpr int64_t kElements = 1 << 19;
  const int rank = world.rank(), last = world.size() - 1;
  for (const DevicePlane& plane : DevicePlanes()) {
    if (plane.name == "staged on the host") {
      continue;  // transfers_test.cpp has MPI itself
    }
    INFO(plane.name);
    const auto of = [&](int from, int m) {
      return filled<int32_t>(kElements, [&](int64_t i) { return narrow<int32_t>(i) + 1000 * from + m; });
    };
    std::vector<PendingTransfer> sends;
    std::vector<Tensor> kept;  // freeing memory would wait for the sends under way
    const auto receive = [&](int peer, int m) {
      kept.push_back(plane.up(Tensor::zeros(DType::I32, {kElements})));
      PendingTransfer transfer = plane.comm->irecv(kept.back(), peer, 0);
      transfer.wait();
      CHECK(bitwise_equal(plane.down(kept.back()), of(peer, m)));
    };
    const auto send = [&](int peer, int m) {
      kept.push_back(plane.up(of(rank, m)));
      sends.push_back(plane.comm->isend(kept.back(), peer, 0));
    };
    const auto step = [&](int m, int from, int to) {
      if (from >= 0 && from <= last) {
        receive(from, m);
      }
      if (to >= 0 && to <= last) {
        send(to, m);
      }
    };
    // One forward, one backward: `ahead` forwards first.
    const int ahead = std::min(last - rank, kMicroBatches);
    for (int m = 0; m < kMicroBatches + ahead; ++m) {
      if (m < kMicroBatches) {
        step(m, rank - 1, rank + 1);
      }
      if (m >= ahead) {
        step(m - ahead, rank + 1, rank - 1);
      }
    }
    for (PendingTransfer& transfer : sends) {
      transfer.wait();
    }
    plane.comm->finish();
  }
}

TEST_CASE("groups of a grid reach the GPU and the host", "[comm][cuda][np1][np2][np4]") {
  HostComm& world = rank_world();
  DevicePlanes planes;
  if (planes.cuda() == nullptr) {
    SKIP("no GPU");
  }
  const int size = world.size();
  const int64_t halves = size > 2 ? 2 : 1;
  const ParallelGrid grid = ParallelGrid::create({.pipeline = size > 1 ? 2 : 1, .data = halves, .expert = halves}, size);
  std::vector<DataPlane> kinds = {DataPlane::Staged};
  if ((planes.end() - 1)->name == "nccl") {
    kinds.push_back(DataPlane::Nccl);
  }
  for (const DataPlane kind : kinds) {
    Groups groups = Groups::create(world, grid, {.journal = &rank_journal(), .data_plane = kind, .cuda = planes.cuda()});
    for (const GroupKind of : kGroupKinds) {
      const Group& group = groups.of(of);
      const Tensor host = Tensor::from<float>({1, 2}, {2});
      const Tensor values = (planes.end() - 1)->up(host);
      group.device.all_reduce_sum(values);
      group.host_data.all_reduce_sum(host);
      CHECK(host.values<float>()[1] == 2 * static_cast<float>(group.size));
      CHECK(bitwise_equal((planes.end() - 1)->down(values), host));
    }
    groups.finish();
  }
}

TEST_CASE("ranks that share a GPU are told to stage", "[comm][cuda][np2][np4]") {
  HostComm& world = rank_world();
  if (!world.agree(!find_gpus().empty()) || nccl_version() == "built without") {
    SKIP("no GPU, or no NCCL");
  }
  CudaContext cuda({DeviceKind::Cuda, 0});
  std::string message;
  try {
    (void)make_nccl_device_comm(world, cuda, NcclChannels::None, {.name = "world"});
  } catch (const DeviceError& error) {
    message = error.what();
  }
  CHECK(message.find("`communicator: staged`") != std::string::npos);
  CHECK(message.find("ranks 0 and 1") != std::string::npos);
}
