// See watchdog.h.
#include "comm/watchdog.h"

#include <fmt/format.h>

#include <cstdio>

namespace longhaul {

Watchdog::Watchdog(WatchdogOptions options, const CommJournal& journal, Actions actions)
    : options_(std::move(options)), journal_(journal), actions_(std::move(actions)) {
  if (options_.limit.count() > 0) {
    thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  }
}

void Watchdog::beat(std::string_view phase) {
  const std::lock_guard lock(mutex_);
  last_beat_ = Clock::now();
  phase_ = phase;
}

void Watchdog::watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const Clock::time_point deadline = last_beat_ + options_.limit;
    if (Clock::now() < deadline) {
      // Nobody wakes this thread but the end of the program; a beat only moves the deadline that is looked at next.
      wake_.wait_until(lock, stop, deadline, [] { return false; });
      continue;
    }
    const std::string text = report_text(Clock::now() - last_beat_, phase_);
    lock.unlock();
    actions_.report(text);
    lock.lock();
    wake_.wait_for(lock, stop, options_.grace, [] { return false; });
    if (!stop.stop_requested()) {
      lock.unlock();
      actions_.end_job();
    }
    return;
  }
}

std::string Watchdog::report_text(Clock::duration silence, const std::string& phase) const {
  const double seconds = std::chrono::duration<double>(silence).count();
  return fmt::format("[rank {} {}] watchdog: no progress for {:.1f} s in phase '{}'; last communication, newest last:\n{}",
                     options_.rank, options_.host_name, seconds, phase, journal_.describe(options_.journal_entries));
}

void Watchdog::report_to_stderr(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace longhaul
