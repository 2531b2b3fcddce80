// Packing: hand-made sequences, and the accounting of every token.
#include "data/packing.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "data/test_corpus.h"

using namespace longhaul;
using namespace longhaul::testing;

namespace {

constexpr DocumentOrder kStored{.shuffle = Shuffle::None};

[[nodiscard]] Sequence next(const TokenFile& file, int64_t length, SourceCursor& cursor) {
  SequencePlan plan;
  take_tokens(file, kStored, length, cursor, plan);
  return read_sequence(file, plan);
}

using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;

}  // namespace

TEST_CASE("documents are packed, cut and continued", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "t", {{10, 11, 12}, {20}, {}, {30, 31, 32, 33, 34, 35}, {40, 41}});
  const TokenFile file = open_corpus(folder / "t");
  SourceCursor cursor;
  const Sequence a = next(file, 6, cursor);
  CHECK(a.tokens == Ints{10, 11, 12, 20, 30, 31});
  CHECK(a.targets == Ints{11, 12, -100, -100, 31, 32});  // 32 is read ahead across the cut
  CHECK(a.cu_seqlens == Longs{0, 3, 4, 6});
  CHECK(a.num_targets == 4);
  CHECK(cursor == SourceCursor{.epoch = 0, .position = 3, .offset = 2});
  const Sequence b = next(file, 6, cursor);
  CHECK(b.tokens == Ints{32, 33, 34, 35, 40, 41});
  CHECK(b.targets == Ints{33, 34, 35, -100, 41, -100});
  CHECK(b.cu_seqlens == Longs{0, 4, 6});
  CHECK(cursor == SourceCursor{.epoch = 1, .position = 0, .offset = 0});
  const Sequence c = next(file, 6, cursor);
  CHECK(c.tokens == a.tokens);
}

TEST_CASE("a document of a sequence's length, one token longer, and one of a single token", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "t", {{1, 2, 3, 4}, {5, 6, 7, 8, 9}, {10}});
  const TokenFile file = open_corpus(folder / "t");
  SourceCursor cursor;
  CHECK(next(file, 4, cursor).targets == Ints{2, 3, 4, -100});
  const Sequence cut = next(file, 4, cursor);
  CHECK(cut.targets == Ints{6, 7, 8, 9});
  CHECK(cut.num_targets == 4);
  const Sequence rest = next(file, 2, cursor);
  CHECK(rest.tokens == Ints{9, 10});
  CHECK(rest.targets == Ints{-100, -100});
  CHECK(rest.cu_seqlens == Longs{0, 1, 2});
  CHECK(rest.num_targets == 0);
}

TEST_CASE("one sequence may hold a small corpus several times", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "t", {{1, 2}, {3}});
  const TokenFile file = open_corpus(folder / "t");
  SourceCursor cursor;
  const Sequence sequence = next(file, 7, cursor);
  CHECK(sequence.tokens == Ints{1, 2, 3, 1, 2, 3, 1});
  CHECK(sequence.targets == Ints{2, -100, -100, 2, -100, -100, 2});
  CHECK(cursor == SourceCursor{.epoch = 2, .position = 0, .offset = 1});
}

TEST_CASE("targets of documents of 3, 5 and 1 tokens: all but each one's last", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "t", numbered_documents({3, 5, 1}));
  const TokenFile file = open_corpus(folder / "t");
  for (const int64_t length : {1, 2, 3, 4, 9}) {
    SourceCursor cursor;
    int64_t targets = 0;
    for (int64_t taken = 0; taken < 9; taken += length) {
      SequencePlan plan;
      take_tokens(file, kStored, std::min(length, 9 - taken), cursor, plan);
      const Sequence sequence = read_sequence(file, plan);
      const auto counted = std::count_if(sequence.targets.begin(), sequence.targets.end(), [](int32_t t) { return t >= 0; });
      CHECK(counted == plan.num_targets);
      targets += plan.num_targets;
    }
    CHECK(targets == 6);  // whatever the sequence length: a cut loses no target
    CHECK(cursor == SourceCursor{.epoch = 1});
  }
}

TEST_CASE("every token is delivered once an epoch at any sequence length", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "t", numbered_documents({5, 20, 3, 1, 1, 0, 17, 2}));
  const TokenFile file = open_corpus(folder / "t");
  const DocumentOrder shuffled{.shuffle = Shuffle::Documents, .seed = 9, .source_id = 4};
  for (const int64_t length : {1, 3, 8, 49, 64}) {
    SourceCursor cursor;
    std::vector<int> seen(49, 0);
    const int64_t epochs = 3 * length;  // a whole number of sequences
    for (int64_t i = 0; i < 49 * epochs / length; ++i) {
      SequencePlan plan;
      take_tokens(file, shuffled, length, cursor, plan);
      for (const int32_t token : read_sequence(file, plan).tokens) {
        ++seen[static_cast<size_t>(token)];
      }
    }
    CHECK(seen == std::vector<int>(49, static_cast<int>(epochs)));
    SequencePlan first_of_next;  // an empty document at the end of an epoch is passed over with the next token
    take_tokens(file, shuffled, 1, cursor, first_of_next);
    CHECK(cursor.epoch == epochs);
  }
}

TEST_CASE("a micro-batch is sequences end to end", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "t", numbered_documents({3, 5}));
  const TokenFile file = open_corpus(folder / "t");
  SourceCursor cursor;
  Sequence batch;
  append(batch, next(file, 4, cursor));
  append(batch, next(file, 4, cursor));
  CHECK(batch.tokens == Ints{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(batch.cu_seqlens == Longs{0, 3, 4, 8});
  CHECK(batch.num_targets == 6);
}
