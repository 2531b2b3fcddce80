// The control plane over MPI: gathering, agreeing, splitting, messages, agreed errors.
#include <algorithm>

#include "base/cast.h"
#include "comm/agreement.h"
#include "comm/groups.h"
#include "tensor/tensor.h"
#include "tests/support/rank_checks.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("values, strings and bytes of any length are gathered by rank", "[comm][np2][np3][np4]") {
  HostComm& world = rank_world();
  const std::vector<int> ranks = world.all_gather_value(world.rank());
  const std::vector<std::string> texts = world.all_gather_strings(std::string(static_cast<size_t>(3 * world.rank()), 'x'));
  CHECK(narrow<int>(ranks.size()) == world.size());
  for (int r = 0; r < world.size(); ++r) {
    CHECK(ranks[static_cast<size_t>(r)] == r);
    CHECK(texts[static_cast<size_t>(r)].size() == static_cast<size_t>(3 * r));  // nothing from rank 0
  }
  CHECK(world.local_rank() == world.rank());  // tests run on one node
  CHECK(world.local_size() == world.size());
}

TEST_CASE("every rank can broadcast, also nothing", "[comm][np2][np3][np4]") {
  HostComm& world = rank_world();
  for (int root = 0; root < world.size(); ++root) {
    std::string text = world.rank() == root ? std::string(static_cast<size_t>(root * 1000), 'a') : "old";
    world.broadcast_string(text, root);
    CHECK(text == std::string(static_cast<size_t>(root * 1000), 'a'));
  }
}

TEST_CASE("agree is a logical and, any a logical or", "[comm][np2][np3][np4]") {
  HostComm& world = rank_world();
  CHECK(world.agree(true));
  CHECK_FALSE(world.agree(false));
  CHECK_FALSE(world.any(false));
  for (int odd_one = 0; odd_one < world.size(); ++odd_one) {
    CHECK_FALSE(world.agree(world.rank() != odd_one));
    CHECK(world.any(world.rank() == odd_one));
  }
}

TEST_CASE("messages go round a ring and lengths are checked", "[comm][np2][np3][np4]") {
  HostComm& world = rank_world();
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  const auto mine = static_cast<int64_t>(world.rank());
  int64_t got = -1;
  world.send_bytes(std::as_bytes(std::span(&mine, 1)), next, 9);
  world.recv_bytes(std::as_writable_bytes(std::span(&got, 1)), previous, 9);
  CHECK(got == previous);
  world.send_bytes(std::as_bytes(std::span(&mine, 1)).first(3), next, 10);
  CHECK_THROWS_AS(world.recv_bytes(std::as_writable_bytes(std::span(&got, 1)), previous, 10), CommError);
}

TEST_CASE("split orders by key, then by rank", "[comm][np2][np3][np4]") {
  HostComm& world = rank_world();
  const auto reversed = world.split(0, -world.rank(), "reversed");
  CHECK(reversed->rank() == world.size() - 1 - world.rank());
  const auto same_key = world.split(world.rank() % 2, 7, "parity");
  CHECK(same_key->rank() == world.rank() / 2);
  const std::vector<int> members = same_key->all_gather_value(world.rank());
  CHECK(std::is_sorted(members.begin(), members.end()));
  CHECK(std::all_of(members.begin(), members.end(), [&](int r) { return r % 2 == world.rank() % 2; }));
  CHECK(same_key->local_rank() == same_key->rank());
  CHECK(same_key->name() == "parity");
}

TEST_CASE("all ranks throw the error of the lowest rank that failed, also twice", "[comm][np3][np4]") {
  HostComm& world = rank_world();
  for (const std::vector<int>& failing : {std::vector{0}, std::vector{2}, std::vector{1, 2}, std::vector{0, 1, 2}}) {
    std::exception_ptr mine;
    if (std::find(failing.begin(), failing.end(), world.rank()) != failing.end()) {
      mine = std::make_exception_ptr(DataError("shard of rank {} is cut off", world.rank()));
    }
    std::string message;
    int code = 0;
    bool is_reported_here = false;
    try {
      rethrow_if_any(world, mine);
    } catch (const DataError& error) {
      message = error.what();
      code = error.exit_code();
      is_reported_here = agreed_failure(error) != nullptr && agreed_failure(error)->is_reported_here();
    }
    CHECK(message == fmt::format("[rank {}] shard of rank {} is cut off", failing.front(), failing.front()));
    CHECK(code == 6);
    CHECK(is_reported_here == (world.rank() == failing.front()));
  }
  CHECK_NOTHROW(rethrow_if_any(world, nullptr));
}

TEST_CASE("groups hold the ranks that the grid says", "[comm][np4]") {
  HostComm& world = rank_world();
  for (const ParallelOptions& options :
       {ParallelOptions{.pipeline = 2, .data = 2, .expert = 2}, ParallelOptions{.pipeline = 2, .context = 2},
        ParallelOptions{.data = 2, .context = 2, .expert = 4}, ParallelOptions{.data = 4, .expert = 2}}) {
    const ParallelGrid grid = ParallelGrid::create(options, 4);
    const Groups groups = Groups::create(world, grid);
    for (const GroupKind kind : kGroupKinds) {
      const Group& group = groups.of(kind);
      INFO(grid.describe() << ", group " << group.name);
      CHECK(group.host.all_gather_value(world.rank()) == grid.group_ranks(kind, world.rank()));
      CHECK(group.rank == grid.group_rank(kind, world.rank()));
      CHECK(group.device.rank() == group.rank);
      CHECK(group.device.size() == group.size);
      const Tensor sum = Tensor::from<int64_t>({world.rank()}, {1});
      group.device.all_reduce_sum(sum);
      int64_t wanted = 0;
      for (const int rank : grid.group_ranks(kind, world.rank())) {
        wanted += rank;
      }
      CHECK(sum.values<int64_t>()[0] == wanted);
    }
  }
}
