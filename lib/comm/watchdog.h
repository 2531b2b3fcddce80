// Turns a hang into a report and an exit code. The trainer beats at every phase of a step; when no beat comes for
// `limit`, a thread writes rank, host, phase and the last communications of this rank, waits a little so that the other
// ranks' watchdogs can write theirs, and ends the job with exit code 124.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "comm/comm_journal.h"

namespace longhaul {

inline constexpr int kWatchdogExitCode = 124;

struct WatchdogOptions {
  std::chrono::milliseconds limit = std::chrono::seconds(600);  // zero or less: never fires
  // Between the report and the end of the job. Ranks that hang together time out within moments of each other.
  std::chrono::milliseconds grace = std::chrono::seconds(3);
  int rank = 0;
  std::string host_name;
  int64_t journal_entries = 12;  // written in a report
};

class Watchdog {
 public:
  // Called on the watchdog's thread, both at most once: `report` with the text, then after the grace `end_job`.
  struct Actions {
    std::function<void(const std::string& text)> report;
    std::function<void()> end_job;  // MpiSession::abort(kWatchdogExitCode)
  };

  // `journal` must outlive the watchdog. The clock starts now.
  Watchdog(WatchdogOptions options, const CommJournal& journal, Actions actions);
  ~Watchdog() = default;
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Says that this rank is alive, and what it begins now ("forward", "checkpoint").
  void beat(std::string_view phase);

  // Writes to stderr in one piece.
  static void report_to_stderr(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;

  void watch(const std::stop_token& stop);
  [[nodiscard]] std::string report_text(Clock::duration silence, const std::string& phase) const;

  WatchdogOptions options_;
  const CommJournal& journal_;
  Actions actions_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  Clock::time_point last_beat_ = Clock::now();
  std::string phase_ = "start";
  std::jthread thread_;  // last: it uses all of the above, and its end is waited for first
};

}  // namespace longhaul
