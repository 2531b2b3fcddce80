// The global order: independent of the layout and of where the corpus lies, and exact after a resume.
#include "data/data_loader.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>

#include "data/test_mixture.h"

using namespace longhaul;
using namespace longhaul::testing;

namespace {

// What `ranks` ranks see of `steps` batches, put together in global order. Each has a loader of its own.
[[nodiscard]] std::vector<Sequence> take_on_ranks(std::vector<DataLoader> ranks, int64_t batch, int64_t steps) {
  std::vector<Sequence> all(static_cast<size_t>(batch * steps));
  const auto size = static_cast<int64_t>(ranks.size());
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t rank = 0; rank < size; ++rank) {
      DataLoader& loader = ranks[static_cast<size_t>(rank)];
      const auto plans = loader.next_batch(batch);
      const SequenceRange mine = sequences_of_rank(batch, rank, size);
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        const SequencePlan& plan = plans[static_cast<size_t>(i)];
        REQUIRE(all.at(static_cast<size_t>(plan.index)).tokens.empty());
        all[static_cast<size_t>(plan.index)] = loader.read(plan);
      }
    }
  }
  for (const DataLoader& loader : ranks) {
    CHECK(loader.state() == ranks.front().state());
  }
  return all;
}

}  // namespace

TEST_CASE("any number of ranks sees the same sequences", "[data]") {
  const Mixed mixed;
  DataLoader one = mixed.loader();
  const auto expected = take(one, 60);
  for (const int ranks : {1, 2, 3, 4, 5}) {
    std::vector<DataLoader> loaders;
    for (int r = 0; r < ranks; ++r) {
      loaders.push_back(mixed.loader());
    }
    CHECK(take_on_ranks(std::move(loaders), 12, 5) == expected);
  }
  // Nor does it matter how sequences make batches.
  DataLoader other = mixed.loader();
  std::vector<Sequence> pieces;
  for (const int64_t n : {1, 0, 7, 12, 40}) {
    for (auto& sequence : take(other, n)) {
      pieces.push_back(std::move(sequence));
    }
  }
  CHECK(pieces == expected);
}

TEST_CASE("a rank's share of a batch", "[data]") {
  const auto check = [](int64_t n, int64_t size, const std::vector<int64_t>& begins) {
    for (int64_t rank = 0; rank < size; ++rank) {
      CHECK(sequences_of_rank(n, rank, size).begin == begins[static_cast<size_t>(rank)]);
      CHECK(sequences_of_rank(n, rank, size).end == begins[static_cast<size_t>(rank) + 1]);
    }
  };
  check(12, 4, {0, 3, 6, 9, 12});
  check(7, 3, {0, 3, 5, 7});
  check(1, 3, {0, 1, 1, 1});
}

TEST_CASE("a resume continues bitwise, on any layout and at any step", "[data]") {
  const Mixed mixed;
  DataLoader straight = mixed.loader();
  const auto expected = take(straight, 90);  // several epochs of each source
  CHECK(straight.state().sources[0].cursor.epoch >= 2);
  DataLoader running = mixed.loader();
  for (int64_t step = 0; step < 45; ++step) {
    DataLoader resumed = mixed.loader();
    resumed.restore(saved(running), Continuation::Resume);
    REQUIRE(resumed.state() == running.state());
    const auto rest = take(resumed, 90 - 2 * step);
    REQUIRE(std::equal(rest.begin(), rest.end(), expected.begin() + 2 * step));
    REQUIRE(resumed.state() == straight.state());
    (void)take(running, 2);
  }
  // Saved on 2 ranks, resumed on 3.
  std::vector<DataLoader> three;
  for (int r = 0; r < 3; ++r) {
    three.push_back(mixed.loader());
    DataLoader two = mixed.loader();
    (void)two.next_batch(30);
    three.back().restore(saved(two), Continuation::Resume);
  }
  for (int64_t step = 0; step < 5; ++step) {
    std::vector<Sequence> batch(12);
    for (int64_t r = 0; r < 3; ++r) {
      const auto plans = three[static_cast<size_t>(r)].next_batch(12);
      const auto mine = sequences_of_rank(12, r, 3);
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        batch[static_cast<size_t>(i)] = three[static_cast<size_t>(r)].read(plans[static_cast<size_t>(i)]);
      }
    }
    CHECK(std::equal(batch.begin(), batch.end(), expected.begin() + 30 + 12 * step));
  }
}

TEST_CASE("twelve samples on four ranks, stopped after a step: each is seen once", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "t", numbered_documents(std::vector<int64_t>(12, 4)));
  const auto make = [&] { return DataLoader(open_all({{folder / "t"}}), {.sequence_length = 4, .seed = 1}); };
  std::set<int32_t> ids;
  const auto run = [&](std::vector<DataLoader>& ranks) {
    for (int64_t r = 0; r < 4; ++r) {
      const auto plans = ranks[static_cast<size_t>(r)].next_batch(4);
      const auto mine = sequences_of_rank(4, r, 4);
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        ids.insert(ranks[static_cast<size_t>(r)].read(plans[static_cast<size_t>(i)]).tokens[0]);
      }
    }
  };
  std::vector<DataLoader> first;
  std::vector<DataLoader> second;
  for (int r = 0; r < 4; ++r) {
    first.push_back(make());
    second.push_back(make());
  }
  run(first);
  CHECK(ids.size() == 4);
  for (auto& rank : second) {
    rank.restore(saved(first[0]), Continuation::Resume);
  }
  run(second);
  run(second);
  CHECK(ids.size() == 12);
}

TEST_CASE("epochs are shuffled from the stored order, also after a resume inside one", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "t", numbered_documents(std::vector<int64_t>(20, 4)));
  const auto make = [&](uint64_t seed) { return DataLoader(open_all({{folder / "t"}}), {.sequence_length = 4, .seed = seed}); };
  const auto firsts = [](DataLoader& loader, int64_t n) {
    std::vector<int32_t> result;
    for (const auto& sequence : take(loader, n)) {
      result.push_back(sequence.tokens[0]);
    }
    return result;
  };
  DataLoader loader = make(3);
  const auto epoch0 = firsts(loader, 20);
  const auto epoch1 = firsts(loader, 20);
  const auto epoch2 = firsts(loader, 20);
  CHECK(epoch0 != epoch1);
  CHECK(epoch1 != epoch2);
  CHECK(std::set(epoch1.begin(), epoch1.end()).size() == 20);
  DataLoader other_seed = make(4);
  CHECK(firsts(other_seed, 20) != epoch0);
  DataLoader half = make(3);
  (void)half.next_batch(30);
  DataLoader resumed = make(3);
  resumed.restore(saved(half), Continuation::Resume);
  CHECK(firsts(resumed, 10) == std::vector(epoch1.begin() + 10, epoch1.end()));
  CHECK(firsts(resumed, 20) == epoch2);
}

TEST_CASE("documents of 5, 20 and 3 at sequence length 8: used, dropped and padded add up", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "t", numbered_documents({5, 20, 3}));
  DataLoader loader(open_all({{folder / "t"}}), {.sequence_length = 8, .seed = 1});
  (void)loader.next_batch(7);  // 56 tokens, two epochs
  const DataCounters& counters = loader.state().counters;
  CHECK(counters.used == 2 * 28);
  CHECK(counters.dropped + counters.padded == 0);
  CHECK(counters.documents == 6);
  CHECK(counters.targets == 2 * (28 - 3));
}

TEST_CASE("copies of the corpus in other folders give the same order", "[data]") {
  const Mixed mixed;
  const TemporaryFolder node;
  auto list = mixed.list;
  for (size_t i = 0; i < list.size(); ++i) {
    for (const char* suffix : {".bin", ".idx"}) {
      std::filesystem::copy(list[i].prefix.string() + suffix, node / fmt::format("copy{}{}", i, suffix));
    }
    list[i].prefix = node / fmt::format("copy{}", i);
  }
  DataLoader here = mixed.loader();
  DataLoader there(open_all(list), {.sequence_length = 16, .seed = 42});
  CHECK(take(here, 20) == take(there, 20));
  CHECK(hash(here.state()) == hash(there.state()));
  (void)there.next_batch(1);
  CHECK(hash(here.state()) != hash(there.state()));
}

