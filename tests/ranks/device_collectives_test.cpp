// The data plane over MPI on 2 to 4 ranks: each collective against its definition, whole and cut into tiny messages.
#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/cast.h"
#include "base/philox.h"
#include "comm/device_comm.h"
#include "tensor/tensor.h"
#include "tests/support/compare.h"
#include "tests/support/rank_checks.h"
#include "tests/support/rank_comms.h"

using namespace longhaul;
using namespace longhaul::testing;

namespace {

// Values of widely different size, so that sums depend on their order. A pure function of rank and index.
template <class T>
std::vector<T> values_of(int rank, int64_t n) {
  const RandomStream random{.seed = 7, .stream = static_cast<uint64_t>(rank)};
  std::vector<T> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const auto index = static_cast<uint64_t>(i);
    if constexpr (std::is_integral_v<T>) {
      values[static_cast<size_t>(i)] = static_cast<T>(random.below(index, 1 << 20)) - (1 << 19);
    } else {
      values[static_cast<size_t>(i)] = static_cast<T>(random.normal(index) * std::exp2(random.uniform(index + 1000000) * 20));
    }
  }
  return values;
}

template <class T>
std::vector<T> ordered_sum(int ranks, int64_t n) {
  std::vector<T> sum = values_of<T>(0, n);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<T> values = values_of<T>(rank, n);
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += values[i];
    }
  }
  return sum;
}

template <class T>
Tensor tensor_of(int rank, int64_t n) {
  return Tensor::from(values_of<T>(rank, n), {n});
}

// Rows that rank `from` sends to rank `to`: uneven, and often none.
int64_t rows_between(int from, int to) { return (from * 3 + to * 5 + 1) % 4; }

}  // namespace

TEMPLATE_TEST_CASE("fixed order sums are bitwise those of a sequential sum", "[comm][np2][np3][np4]", float, double, int32_t, int64_t) {
  HostComm& world = rank_world();
  for (const auto& comm : comms_of_all_sizes()) {
    for (const int64_t n : {0, 1, 2, 3, 1001}) {
      const Tensor values = tensor_of<TestType>(world.rank(), n);
      comm->all_reduce_sum(values, ReduceOrder::Fixed);
      CHECK(bitwise_equal(values, Tensor::from(ordered_sum<TestType>(world.size(), n), {n})));
    }
  }
}

TEST_CASE("fixed order crosses the block of an ordered reduction", "[comm][np3]") {
  const auto comm = rank_world().make_cpu_device_comm({.reduce_order = ReduceOrder::Fixed});
  const int64_t n = (int64_t{1} << 20) + 5;  // blocks are 4 MiB
  const Tensor values = tensor_of<float>(rank_world().rank(), n);
  comm->all_reduce_sum(values);
  CHECK(bitwise_equal(values, Tensor::from(ordered_sum<float>(3, n), {n})));
}

TEMPLATE_TEST_CASE("fast sums agree with sequential sums to rounding", "[comm][np2][np3][np4]", float, double, int32_t, int64_t) {
  HostComm& world = rank_world();
  for (const auto& comm : comms_of_all_sizes()) {
    for (const int64_t n : {0, 1, 1001}) {
      const Tensor values = tensor_of<TestType>(world.rank(), n);
      comm->all_reduce_sum(values);
      // Up to 4 terms, each addition rounds once: a few units of 6e-8 in the norm for float. Integers are exact.
      const double bar = std::is_integral_v<TestType> ? 0 : std::is_same_v<TestType, float> ? 1e-6 : 1e-14;
      CHECK(difference(values, Tensor::from(ordered_sum<TestType>(world.size(), n), {n})).within(bar));
    }
  }
}

TEST_CASE("max keeps the largest value and any NaN", "[comm][np2][np3][np4]") {
  HostComm& world = rank_world();
  for (const auto& comm : comms_of_all_sizes()) {
    for (int special = 0; special < world.size(); ++special) {
      const bool here = world.rank() == special;
      const double nan = std::numeric_limits<double>::quiet_NaN();
      const double infinity = std::numeric_limits<double>::infinity();
      const Tensor values = Tensor::from<double>({here ? 5.0 : -1.0, here ? nan : 1.0, here ? infinity : 0.0, -2.5}, {4});
      comm->all_reduce_max(values);
      CHECK(values.values<double>()[0] == 5.0);
      CHECK(std::isnan(values.values<double>()[1]));
      CHECK(values.values<double>()[2] == infinity);
      CHECK(values.values<double>()[3] == -2.5);
    }
    const Tensor counts = Tensor::from<int64_t>({world.rank()}, {1});
    comm->all_reduce_max(counts);
    CHECK(counts.values<int64_t>()[0] == world.size() - 1);
  }
}

TEST_CASE("reduce_scatter gives each rank its part of the ordered sum", "[comm][np2][np3][np4]") {
  HostComm& world = rank_world();
  for (const auto& comm : comms_of_all_sizes()) {
    for (const int64_t rows : {0, 1, 37}) {
      const Tensor input = tensor_of<float>(world.rank(), rows * world.size());
      const Tensor mine = Tensor::zeros(DType::F32, {rows});
      comm->reduce_scatter_sum(input, mine);
      const Tensor sum = Tensor::from(ordered_sum<float>(world.size(), rows * world.size()), {rows * world.size()});
      CHECK(bitwise_equal(mine, sum.view().slice(0, rows * world.rank(), rows * (world.rank() + 1))));
    }
  }
}

TEST_CASE("all_gather lays the parts side by side, also in place", "[comm][np2][np3][np4]") {
  HostComm& world = rank_world();
  for (const auto& comm : comms_of_all_sizes()) {
    for (const int64_t rows : {0, 1, 5}) {
      const Tensor mine = Tensor::from(std::vector<int32_t>(static_cast<size_t>(rows * 3), world.rank() + 1), {rows, 3});
      const Tensor all = Tensor::zeros(DType::I32, {rows * world.size(), 3});
      comm->all_gather(mine, all);
      const Tensor in_place = Tensor::zeros(DType::I32, {rows * world.size(), 3});
      const TensorView own = in_place.view().slice(0, rows * world.rank(), rows * (world.rank() + 1));
      std::fill_n(own.data<int32_t>(), own.numel(), world.rank() + 1);
      comm->all_gather(own, in_place);
      bool right = true;
      for (int64_t i = 0; i < all.view().numel(); ++i) {
        right = right && all.values<int32_t>()[static_cast<size_t>(i)] == i / (rows * 3) + 1;
      }
      CHECK(right);
      CHECK(bitwise_equal(in_place, all));
    }
  }
}

TEST_CASE("broadcast copies from any rank, any type", "[comm][np2][np3][np4]") {
  HostComm& world = rank_world();
  for (const auto& comm : comms_of_all_sizes()) {
    for (int root = 0; root < world.size(); ++root) {
      const Tensor values = Tensor::from(std::vector<uint8_t>(100, static_cast<uint8_t>(world.rank() + 1)), {100});
      comm->broadcast(values, root);
      CHECK(bitwise_equal(values, Tensor::from(std::vector<uint8_t>(100, static_cast<uint8_t>(root + 1)), {100})));
      comm->broadcast(Tensor::zeros(DType::BF16, {0}), root);
    }
  }
}

TEST_CASE("all_to_all_v moves uneven rows, and none", "[comm][np2][np3][np4]") {
  HostComm& world = rank_world();
  const int size = world.size();
  for (const auto& comm : comms_of_all_sizes()) {
    // The second round sends everything to rank 0, as a router may: the others still join.
    for (const bool all_to_zero : {false, true}) {
      const auto rows = [&](int from, int to) { return all_to_zero ? (to == 0 ? int64_t{3} : 0) : rows_between(from, to); };
      std::vector<int64_t> send_rows(static_cast<size_t>(size));
      std::vector<int64_t> recv_rows(static_cast<size_t>(size), -1);
      std::vector<float> send;
      std::vector<float> wanted;
      for (int peer = 0; peer < size; ++peer) {
        send_rows[static_cast<size_t>(peer)] = rows(world.rank(), peer);
        for (int64_t i = 0; i < rows(world.rank(), peer) * 5; ++i) {
          send.push_back(static_cast<float>(1000 * world.rank() + 100 * peer + i));
        }
        for (int64_t i = 0; i < rows(peer, world.rank()) * 5; ++i) {
          wanted.push_back(static_cast<float>(1000 * peer + 100 * world.rank() + i));
        }
      }
      comm->all_to_all_counts(send_rows, recv_rows);
      for (int peer = 0; peer < size; ++peer) {
        CHECK(recv_rows[static_cast<size_t>(peer)] == rows(peer, world.rank()));
      }
      const int64_t received = std::accumulate(recv_rows.begin(), recv_rows.end(), int64_t{0});
      const Tensor recv = Tensor::zeros(DType::F32, {received, 5});
      comm->all_to_all_v({.send = Tensor::from(send, {narrow<int64_t>(send.size()) / 5, 5}),
                          .send_rows = send_rows,
                          .recv = recv,
                          .recv_rows = recv_rows});
      CHECK(bitwise_equal(recv, Tensor::from(wanted, {received, 5})));
    }
  }
}

TEST_CASE("the journals of all ranks are alike after the same collectives", "[comm][np2][np3][np4]") {
  HostComm& world = rank_world();
  CommJournal journal;
  const auto loss = world.make_cpu_device_comm({.name = "loss", .reduce_order = ReduceOrder::Fixed, .journal = &journal});
  const auto expert = world.make_cpu_device_comm({.name = "expert", .journal = &journal});
  const Tensor values = Tensor::zeros(DType::F32, {world.size(), 2});
  const std::vector<int64_t> one_each(static_cast<size_t>(world.size()), 1);
  for (int i = 0; i < 3; ++i) {
    loss->all_reduce_sum(values);
    expert->all_to_all_v({.send = values, .send_rows = one_each, .recv = Tensor::zeros(DType::F32, {world.size(), 2}), .recv_rows = one_each});
    expert->broadcast(values, 0);
  }
  const std::string text = journal.describe(64);
  const std::vector<std::string> texts = world.all_gather_strings(text);
  CHECK(std::all_of(texts.begin(), texts.end(), [&](const std::string& other) { return other == text; }));
  CHECK(text.substr(0, text.find('\n')) == fmt::format("  all_reduce_sum loss#1 {} bytes (done)", values.view().bytes()));
  CHECK(journal.entries().back().sequence == 6);  // of the expert group
  CHECK(journal.entries().size() == 9);
}
