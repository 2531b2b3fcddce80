// See profile.h.
#include "base/profile.h"

#include <algorithm>
#include <ctime>

#include "base/error.h"

namespace longhaul {
namespace {

thread_local Profile* recording = nullptr;  // a measurement, not state that results depend on

}  // namespace

double thread_seconds() noexcept {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Profile::Entry Profile::find(std::string_view name) const noexcept {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [name](const Entry& entry) { return entry.name == name; });
  return found == entries_.end() ? Entry{.name = name} : *found;
}

void Profile::begin(std::string_view name) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [name](const Entry& entry) { return entry.name == name; });
  const auto index = static_cast<size_t>(found - entries_.begin());
  if (found == entries_.end()) {
    entries_.push_back({.name = name});
  }
  open_.push_back({.entry = index, .start = thread_seconds()});
}

void Profile::end() {
  const Open scope = open_.back();
  open_.pop_back();
  const double seconds = thread_seconds() - scope.start;
  Entry& entry = entries_[scope.entry];
  ++entry.calls;
  entry.seconds += seconds;
  entry.own_seconds += seconds - scope.inside;
  if (!open_.empty()) {
    open_.back().inside += seconds;
  }
}

ProfileRecording::ProfileRecording(Profile& profile) {
  if (recording != nullptr) {
    throw UsageError("a profile is being recorded on this thread already");
  }
  recording = &profile;
}

ProfileRecording::~ProfileRecording() { recording = nullptr; }

ProfileScope::ProfileScope(std::string_view name) : profile_(recording) {
  if (profile_ != nullptr) {
    profile_->begin(name);
  }
}

ProfileScope::~ProfileScope() {
  if (profile_ != nullptr) {
    profile_->end();
  }
}

}  // namespace longhaul
