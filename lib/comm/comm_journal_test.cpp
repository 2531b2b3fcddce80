// The ring forgets the oldest, and marks what has ended.
#include "comm/comm_journal.h"

#include <catch2/catch_test_macros.hpp>
#include <stdexcept>

using namespace longhaul;

TEST_CASE("the journal keeps the newest entries in order", "[comm]") {
  CommJournal journal(3);
  JournalWriter data(&journal, "data");
  JournalWriter expert(&journal, "expert");
  data.note("all_reduce_sum", 64, -1, [] {});
  for (int64_t i = 1; i <= 3; ++i) {
    expert.note("all_to_all_v", i, -1, [] {});
  }
  const auto entries = journal.entries();
  REQUIRE(entries.size() == 3);
  for (int64_t i = 0; i < 3; ++i) {
    CHECK(entries[static_cast<size_t>(i)].group == "expert");
    CHECK(entries[static_cast<size_t>(i)].sequence == i + 1);
    CHECK(entries[static_cast<size_t>(i)].finished);
  }
}

TEST_CASE("what has not ended is shown as running", "[comm]") {
  CommJournal journal(4);
  JournalWriter writer(&journal, "context");
  CHECK(journal.describe(8) == "  no communication yet\n");
  writer.note("broadcast", 8, -1, [] {});
  const int64_t sent = writer.begin("isend", 16, 2);
  CHECK_THROWS_AS(writer.note("all_gather", 32, -1, [] { throw std::runtime_error("lost"); }), std::runtime_error);
  CHECK(journal.describe(2) == "  isend context#2 peer 2 16 bytes (running)\n  all_gather context#3 32 bytes (running)\n");
  writer.finish(sent);
  CHECK(journal.describe(8) ==
        "  broadcast context#1 8 bytes (done)\n  isend context#2 peer 2 16 bytes (done)\n"
        "  all_gather context#3 32 bytes (running)\n");
}

TEST_CASE("the end of a forgotten entry changes nothing", "[comm]") {
  CommJournal journal(1);
  JournalWriter writer(&journal, "world");
  const int64_t old = writer.begin("isend", 1, 0);
  static_cast<void>(writer.begin("irecv", 1, 0));
  writer.finish(old);
  CHECK_FALSE(journal.entries().front().finished);
}
