// The watchdog fires once, names what was going on, and stays quiet while there are beats. Waits are bounded from one
// side only, so a slow machine cannot fail these tests.
#include "comm/watchdog.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <future>

using namespace longhaul;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("silence is reported with phase and journal, then the job ends", "[comm]") {
  CommJournal journal;
  JournalWriter expert(&journal, "expert");
  expert.note("all_gather", 16, -1, [] {});
  static_cast<void>(expert.begin("all_to_all_v", 4096));
  std::promise<std::string> report;
  std::promise<void> ended;
  Watchdog watchdog({.limit = 30ms, .grace = 1ms, .rank = 3, .host_name = "node17"}, journal,
                    {.report = [&](const std::string& text) { report.set_value(text); }, .end_job = [&] { ended.set_value(); }});
  watchdog.beat("backward");
  auto text = report.get_future();
  REQUIRE(text.wait_for(30s) == std::future_status::ready);
  const std::string got = text.get();
  CHECK_THAT(got, ContainsSubstring("[rank 3 node17] watchdog: no progress for"));
  CHECK_THAT(got, ContainsSubstring("phase 'backward'"));
  CHECK_THAT(got, ContainsSubstring("all_gather expert#1 16 bytes (done)\n  all_to_all_v expert#2 4096 bytes (running)"));
  CHECK(ended.get_future().wait_for(30s) == std::future_status::ready);
}

TEST_CASE("beats keep the watchdog quiet", "[comm]") {
  CommJournal journal;
  bool fired = false;
  {
    Watchdog watchdog({.limit = 10s}, journal, {.report = [&](const std::string&) { fired = true; }, .end_job = [&] { fired = true; }});
    for (int i = 0; i < 5; ++i) {
      watchdog.beat("step");
      std::this_thread::sleep_for(1ms);
    }
  }  // the end of the program does not wait for the limit
  CHECK_FALSE(fired);
}

TEST_CASE("a program that ends within the grace is not aborted", "[comm]") {
  CommJournal journal;
  std::promise<void> reported;
  bool ended = false;
  {
    Watchdog watchdog({.limit = 1ms, .grace = 60s}, journal,
                      {.report = [&](const std::string&) { reported.set_value(); }, .end_job = [&] { ended = true; }});
    REQUIRE(reported.get_future().wait_for(30s) == std::future_status::ready);
  }
  CHECK_FALSE(ended);
}

TEST_CASE("a limit of zero switches the watchdog off", "[comm]") {
  CommJournal journal;
  bool fired = false;
  {
    Watchdog watchdog({.limit = 0ms}, journal, {.report = [&](const std::string&) { fired = true; }, .end_job = [&] { fired = true; }});
    std::this_thread::sleep_for(5ms);
  }
  CHECK_FALSE(fired);
}
