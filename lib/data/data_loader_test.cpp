// The global order: independent of the layout, exact after a resume, and stable when sources or lengths change.
#include "data/data_loader.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "base/philox.h"
#include "data/test_corpus.h"

using namespace longhaul;
using namespace longhaul::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// Three sources of uneven documents, with tokens that tell them apart.
struct Mixed {
  TemporaryFolder folder;
  std::vector<TestSource> list;

  Mixed() {
    const RandomStream stream{.seed = 5, .stream = stream_id("lengths")};
    int32_t first = 0;
    for (int s = 0; s < 3; ++s) {
      std::vector<int64_t> lengths;
      for (uint64_t i = 0; i < 23; ++i) {
        lengths.push_back(static_cast<int64_t>(stream.below(100 * static_cast<uint64_t>(s) + i, i % 5 == 0 ? 70 : 9)));
      }
      const auto prefix = folder / fmt::format("source{}", s);
      write_corpus(prefix, numbered_documents(lengths, first));
      first += 10000;
      list.push_back({prefix, s == 0 ? 2.0 : 1.0});
    }
  }
  [[nodiscard]] DataLoader loader(int64_t sequence_length = 16, uint64_t seed = 42) const {
    return {open_all(list), {.sequence_length = sequence_length, .seed = seed}};
  }
};

[[nodiscard]] std::vector<Sequence> take(DataLoader& loader, int64_t sequences) {
  std::vector<Sequence> result;
  for (const SequencePlan& plan : loader.next_batch(sequences)) {
    result.push_back(loader.read(plan));
  }
  return result;
}

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

// Through the text of a checkpoint.
[[nodiscard]] DataState saved(const DataLoader& loader) {
  return data_state_from_json(nlohmann::json::parse(to_json(loader.state()).dump()));
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
  auto padded = std::vector<Sequence>(30);
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

TEST_CASE("the token stream goes on across a change of sequence length", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "t", numbered_documents({7, 30, 1, 12, 5, 9}));
  const auto make = [&](int64_t length) { return DataLoader(open_all({{folder / "t"}}), {.sequence_length = length, .seed = 6}); };
  const auto tokens_of = [](const std::vector<Sequence>& sequences) {
    std::vector<int32_t> tokens;
    for (const auto& sequence : sequences) {
      tokens.insert(tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
    }
    return tokens;
  };
  DataLoader straight = make(8);
  const auto expected = tokens_of(take(straight, 20));
  DataLoader short_stage = make(8);
  auto tokens = tokens_of(take(short_stage, 4));
  DataLoader long_stage = make(32);
  long_stage.restore(saved(short_stage), Continuation::NewStage);
  for (const int32_t token : tokens_of(take(long_stage, 4))) {
    tokens.push_back(token);
  }
  CHECK(tokens == expected);
  CHECK(long_stage.state().counters.used == 160);
  CHECK(long_stage.state().sequences == 8);
  CHECK(long_stage.state().sources[0].cursor == straight.state().sources[0].cursor);
}

TEST_CASE("the mixture keeps its shares through a resume", "[data]") {
  const Mixed mixed;
  DataLoader loader = mixed.loader();
  (void)loader.next_batch(7);
  DataLoader resumed = mixed.loader();
  resumed.restore(saved(loader), Continuation::Resume);
  (void)resumed.next_batch(93);
  const auto& sources = resumed.state().sources;
  CHECK(sources[0].total_tokens == 50 * 16);
  CHECK(sources[1].total_tokens == 25 * 16);
  CHECK(sources[2].total_tokens == 25 * 16);
  const DataCounters& counters = resumed.state().counters;
  CHECK(counters.used == 1600);
  CHECK(counters.dropped == 0);
  CHECK(counters.padded == 0);
  CHECK(counters.targets + counters.documents == counters.used);
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

TEST_CASE("an empty source keeps its place and its id", "[data]") {
  Mixed mixed;
  write_corpus(mixed.folder / "empty", {});
  write_corpus(mixed.folder / "hollow", {{}, {}});
  mixed.list.insert(mixed.list.begin() + 1, {mixed.folder / "empty", 5.0});
  mixed.list.push_back({mixed.folder / "hollow", 1.0});
  DataLoader straight = mixed.loader();
  const auto expected = take(straight, 20);
  DataLoader half = mixed.loader();
  (void)half.next_batch(8);
  DataLoader resumed = mixed.loader();
  resumed.restore(saved(half), Continuation::Resume);
  const auto rest = take(resumed, 12);
  CHECK(std::equal(rest.begin(), rest.end(), expected.begin() + 8));
  const auto& sources = resumed.state().sources;
  REQUIRE(sources.size() == 5);
  for (size_t i = 0; i < 5; ++i) {
    CHECK(sources[i].id == static_cast<int64_t>(i));
  }
  CHECK(sources[1].total_tokens == 0);
  CHECK(sources[4].total_tokens == 0);
  CHECK(sources[2].total_tokens == 5 * 16);
  CHECK_THROWS_AS(DataLoader(open_all({{mixed.folder / "empty"}, {mixed.folder / "hollow"}}), {.sequence_length = 4}), DataError);
  CHECK_THROWS_AS(DataLoader(open_all({{mixed.folder / "source0", 0.0}}), {.sequence_length = 4}), RecipeError);
  CHECK_THROWS_AS(DataLoader({}, {.sequence_length = 4}), RecipeError);
}

TEST_CASE("sources may come, go and return between stages, and keep their places", "[data]") {
  const Mixed mixed;
  DataLoader first = mixed.loader();
  (void)first.next_batch(8);
  // The second stage leaves source 1 out and brings a new one in front.
  write_corpus(mixed.folder / "extra", numbered_documents({40, 40}, 40000));
  const std::vector<TestSource> list{{mixed.folder / "extra", 1.0}, mixed.list[2], mixed.list[0]};
  DataLoader second(open_all(list), {.sequence_length = 32, .seed = 42});
  second.restore(saved(first), Continuation::NewStage);
  REQUIRE(second.state().sources.size() == 4);
  CHECK(second.state().sources[0].id == 3);
  CHECK(second.state().sources[1].id == 2);
  CHECK(second.state().sources[1].cursor == first.state().sources[2].cursor);
  CHECK(second.state().sources[2].id == 0);
  CHECK_FALSE(second.state().sources[3].is_active);
  (void)second.next_batch(8);
  // Shares of this stage alone: 1 : 1 : 2.
  CHECK(second.state().sources[0].mixture_tokens == 2 * 32);
  CHECK(second.state().sources[2].mixture_tokens == 4 * 32);
  // A resume inside the second stage.
  DataLoader resumed(open_all(list), {.sequence_length = 32, .seed = 42});
  resumed.restore(saved(second), Continuation::Resume);
  CHECK(take(resumed, 6) == take(second, 6));
  // The third stage takes source 1 again: it goes on where it stood.
  DataLoader third = mixed.loader();
  third.restore(saved(second), Continuation::NewStage);
  CHECK(third.state().sources[1].cursor == first.state().sources[1].cursor);
  CHECK(third.state().sources[1].id == 1);
  CHECK(third.state().sources[1].is_active);
}

TEST_CASE("a resume on other data is refused", "[data]") {
  const Mixed mixed;
  DataLoader loader = mixed.loader();
  (void)loader.next_batch(5);
  const DataState state = saved(loader);
  const auto refusal = [&](const std::vector<TestSource>& list, uint64_t seed = 42, Shuffle shuffle = Shuffle::Documents) {
    DataLoader other(open_all(list), {.sequence_length = 16, .seed = seed, .shuffle = shuffle});
    return message_of<DataError>([&] { other.restore(state, Continuation::Resume); });
  };
  CHECK(refusal(mixed.list).empty());
  CHECK_THAT(refusal(mixed.list, 43), ContainsSubstring("seed 42"));
  CHECK_THAT(refusal(mixed.list, 42, Shuffle::None), ContainsSubstring("shuffle"));
  CHECK_THAT(refusal({mixed.list[0], mixed.list[1]}), ContainsSubstring("no longer lists"));
  write_corpus(mixed.folder / "extra", {{1}});
  auto longer = mixed.list;
  longer.push_back({mixed.folder / "extra"});
  CHECK_THAT(refusal(longer), ContainsSubstring("was not part of the run"));
  // A moved copy is the same data.
  write_corpus(mixed.folder / "changed", {{1, 2, 3}});
  std::filesystem::create_directories(mixed.folder / "elsewhere");
  auto moved = mixed.list;
  for (const char* suffix : {".bin", ".idx"}) {
    std::filesystem::copy(mixed.folder / (std::string("source1") + suffix), mixed.folder / (std::string("elsewhere/s") + suffix));
  }
  moved[1].prefix = mixed.folder / "elsewhere/s";
  CHECK(refusal(moved).empty());
  // The same name with other content is not.
  for (const char* suffix : {".bin", ".idx"}) {
    std::filesystem::rename(mixed.folder / (std::string("changed") + suffix), mixed.folder / (std::string("source1") + suffix));
  }
  CHECK_THAT(refusal(mixed.list), ContainsSubstring("has changed"));
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

TEST_CASE("a damaged data state is a CheckpointError that names the key", "[data]") {
  const Mixed mixed;
  DataLoader loader = mixed.loader();
  (void)loader.next_batch(5);
  const nlohmann::json good = to_json(loader.state());
  CHECK(data_state_from_json(good) == loader.state());
  for (const auto& [key, value] : good.items()) {
    nlohmann::json missing = good;
    missing.erase(key);
    CHECK_THAT(message_of<CheckpointError>([&] { (void)data_state_from_json(missing); }), ContainsSubstring(key));
    nlohmann::json wrong = good;
    wrong[key] = nullptr;
    CHECK_THROWS_AS(data_state_from_json(wrong), CheckpointError);
  }
  for (const auto& [key, value] : good["sources"][0].items()) {
    nlohmann::json missing = good;
    missing["sources"][0].erase(key);
    CHECK_THROWS_AS(data_state_from_json(missing), CheckpointError);
  }
  for (const char* key : {"epoch", "position", "offset"}) {
    nlohmann::json negative = good;
    negative["sources"][0][key] = -1;
    CHECK_THROWS_AS(data_state_from_json(negative), CheckpointError);
  }
  CHECK_THROWS_AS(data_state_from_json(nlohmann::json::array()), CheckpointError);
  // A position that the files do not have.
  for (const char* key : {"position", "offset"}) {
    nlohmann::json beyond = good;
    beyond["sources"][0][key] = 1000000;
    DataLoader other = mixed.loader();
    CHECK_THROWS_AS(other.restore(data_state_from_json(beyond), Continuation::Resume), CheckpointError);
  }
}

TEST_CASE("the largest seed survives the text of a checkpoint", "[data]") {
  const DataState state{.seed = ~uint64_t{0}};
  CHECK(data_state_from_json(nlohmann::json::parse(to_json(state).dump())).seed == ~uint64_t{0});
}
