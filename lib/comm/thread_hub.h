// Where ranks that are threads of one process meet: collective rounds, and mailboxes. Everything is guarded by one lock,
// which is enough for tests. When a rank fails, all that wait throw PeerFailedError; so does a wait that is too long.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/mailbox.h"

namespace longhaul {

// The consequence of another rank's failure, as opposed to its cause.
class PeerFailedError : public CommError {
  using CommError::CommError;
};

class ThreadHub {
 public:
  using Bytes = std::vector<std::byte>;

  explicit ThreadHub(std::chrono::milliseconds limit) : limit_(limit) {}

  // One rank's place in one communicator. Communicators are named alike on all their ranks.
  struct Seat {
    std::string channel;
    int rank = 0;
    int size = 1;
  };
  // Collective over the seat's channel: every rank's bytes, by rank. `round` counts the exchanges of the channel.
  [[nodiscard]] std::vector<Bytes> exchange(const Seat& seat, int64_t round, std::span<const std::byte> mine);
  void post(const std::string& channel, const Mailbox::Key& key, std::span<const std::byte> data);
  [[nodiscard]] Bytes take(const std::string& channel, const Mailbox::Key& key);

  // Wakes and fails all that wait, now and later.
  void fail();

 private:
  struct Round {
    std::vector<Bytes> parts;
    int arrived = 0;
    int left = 0;
  };
  void wait_for(std::unique_lock<std::mutex>& lock, const std::string& what, const std::function<bool()>& ready);

  std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool failed_ = false;
  std::map<std::pair<std::string, int64_t>, Round> rounds_;
  std::map<std::string, Mailbox> mailboxes_;
};

}  // namespace longhaul
