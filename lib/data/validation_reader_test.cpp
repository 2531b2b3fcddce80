// Validation data: fixed, from the start, never twice.
#include "data/validation_reader.h"

#include <catch2/catch_test_macros.hpp>

#include "data/test_corpus.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("documents of 5, 20 and 3 in validation sequences of 8", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "t", numbered_documents({5, 20, 3}));
  const ValidationReader all(open_all({{folder / "t"}}), 8, 1000);
  CHECK(all.num_sequences() == 4);
  CHECK(all.counters().used == 28);
  CHECK(all.counters().padded == 4);
  CHECK(all.counters().dropped == 0);
  CHECK(all.num_targets() == 25);
  const Sequence last = all.read(3);
  CHECK(last.tokens == std::vector<int32_t>{24, 25, 26, 27, 0, 0, 0, 0});
  CHECK(last.targets == std::vector<int32_t>{-100, 26, 27, -100, -100, -100, -100, -100});
  CHECK(last.cu_seqlens == std::vector<int64_t>{0, 1, 4, 8});
  CHECK(last.num_padding == 4);
  const Sequence beyond = all.read(4);
  CHECK(beyond.num_targets == 0);
  CHECK(beyond.num_padding == 8);
  CHECK(beyond.cu_seqlens == std::vector<int64_t>{0, 8});
  CHECK(beyond.tokens.size() == 8);

  const ValidationReader some(open_all({{folder / "t"}}), 8, 17);  // rounded up to 24
  CHECK(some.num_sequences() == 3);
  CHECK(some.counters().used == 24);
  CHECK(some.counters().dropped == 4);
  CHECK(some.counters().padded == 0);
  CHECK(some.read(0) == all.read(0));
  CHECK(some.read(2) == all.read(2));
  CHECK(some.read(0) == some.read(0));
}

TEST_CASE("validation sources share the tokens by weight until they end", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "a", numbered_documents({6}));
  write_corpus(folder / "b", numbered_documents({40}, 100));
  write_corpus(folder / "c", numbered_documents({40}, 200));
  const ValidationReader reader(open_all({{folder / "a"}, {folder / "b"}, {folder / "c", 2.0}}), 4, 48);
  CHECK(reader.num_sequences() == 12);
  std::vector<int64_t> sequences(3, 0);
  for (const auto& plan : reader.plans()) {
    ++sequences[static_cast<size_t>(plan.source)];
  }
  CHECK(sequences[0] == 2);  // 6 tokens and 2 of padding
  CHECK(sequences[2] >= 6);
  CHECK(reader.counters().used == 46);
  CHECK(reader.counters().padded == 2);
  CHECK(reader.counters().used + reader.counters().dropped == 86);
}

TEST_CASE("empty validation sources are passed over; none at all is an error", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "a", {});
  write_corpus(folder / "b", {{1, 2, 3}});
  const ValidationReader reader(open_all({{folder / "a"}, {folder / "b"}}), 2, 100);
  CHECK(reader.num_sequences() == 2);
  CHECK(reader.read(1).tokens == std::vector<int32_t>{3, 0});
  CHECK_THROWS_AS(ValidationReader(open_all({{folder / "a"}}), 2, 100), DataError);
  CHECK_THROWS_AS(ValidationReader({}, 2, 100), RecipeError);
}
