// The cursor: what changes between stages, what a resume refuses, and its text in a checkpoint.
#include "data/data_state.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include "data/test_mixture.h"

using namespace longhaul;
using namespace longhaul::testing;
using Catch::Matchers::ContainsSubstring;

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
