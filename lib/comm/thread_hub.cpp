// See thread_hub.h.
#include "comm/thread_hub.h"

namespace longhaul {

void ThreadHub::wait_for(std::unique_lock<std::mutex>& lock, const std::string& what, const std::function<bool()>& ready) {
  const bool in_time = changed_.wait_for(lock, limit_, [&] { return failed_ || ready(); });
  if (ready()) {
    return;
  }
  if (in_time) {
    throw PeerFailedError("{}: another rank has failed", what);
  }
  throw PeerFailedError("{}: waited {} ms; another rank never came", what, limit_.count());
}

std::vector<ThreadHub::Bytes> ThreadHub::exchange(const Seat& seat, int64_t round_number, std::span<const std::byte> mine) {
  std::unique_lock lock(mutex_);
  const auto key = std::pair(seat.channel, round_number);
  Round& round = rounds_[key];  // stays where it is while others add rounds
  round.parts.resize(static_cast<size_t>(seat.size));
  round.parts[static_cast<size_t>(seat.rank)].assign(mine.begin(), mine.end());
  if (++round.arrived == seat.size) {
    changed_.notify_all();
  }
  wait_for(lock, fmt::format("rank {} in round {} of {}", seat.rank, round_number, seat.channel),
           [&] { return round.arrived == seat.size; });
  std::vector<Bytes> parts = round.parts;
  if (++round.left == seat.size) {
    rounds_.erase(key);
  }
  return parts;
}

void ThreadHub::post(const std::string& channel, const Mailbox::Key& key, std::span<const std::byte> data) {
  const std::lock_guard lock(mutex_);
  mailboxes_[channel].post(key, data);
  changed_.notify_all();
}

ThreadHub::Bytes ThreadHub::take(const std::string& channel, const Mailbox::Key& key) {
  std::unique_lock lock(mutex_);
  std::optional<Bytes> letter;
  wait_for(lock, fmt::format("rank {} receiving from rank {} (tag {}) in {}", key.to, key.from, key.tag, channel), [&] {
    if (!letter.has_value()) {
      letter = mailboxes_[channel].take(key);
    }
    return letter.has_value();
  });
  return *std::move(letter);
}

void ThreadHub::fail() {
  const std::lock_guard lock(mutex_);
  failed_ = true;
  changed_.notify_all();
}

}  // namespace longhaul
