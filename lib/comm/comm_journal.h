// What this process last asked of the network: a small ring of (operation, group, sequence number, bytes). Every
// collective of every group of a session is noted when it starts and when it ends. A job that hangs is then read by
// laying the journals of the ranks side by side: "rank 3 at all_to_all_v expert#118, rank 5 at all_reduce data#402".
// Owned by the session and shared by its communicators; safe to read from the watchdog's thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

class CommJournal {
 public:
  struct Entry {
    int64_t ticket = 0;   // counts all entries of this process
    std::string_view op;  // a literal
    std::string group;
    int64_t sequence = 0;  // counts the operations of this communicator; equal on all its ranks for collectives
    int64_t bytes = 0;     // of this rank's input
    int peer = -1;         // of a point-to-point operation
    bool finished = false;
  };

  explicit CommJournal(int64_t capacity = 64);

  // Notes the start of an operation; ticket is set here. Returns the ticket.
  int64_t begin(Entry entry);
  // A ticket that the ring has forgotten is ignored.
  void finish(int64_t ticket);

  // Oldest first.
  [[nodiscard]] std::vector<Entry> entries() const;
  // The last `count` entries, one a line, newest last: "  all_reduce_sum loss#12 4096 bytes (running)".
  [[nodiscard]] std::string describe(int64_t count) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Entry> ring_;  // slot = ticket % capacity; ticket 0 means unused
  int64_t next_ticket_ = 1;
};

// The writing end that one communicator owns: knows its group's name and counts its operations.
class JournalWriter {
 public:
  JournalWriter(CommJournal* journal, std::string group) : journal_(journal), group_(std::move(group)) {}

  [[nodiscard]] const std::string& group() const noexcept { return group_; }
  [[nodiscard]] CommJournal* journal() const noexcept { return journal_; }
  // Returns the ticket, or 0 without a journal.
  int64_t begin(std::string_view op, int64_t bytes, int peer = -1);
  void finish(int64_t ticket);

  // Runs an operation between begin and finish. An operation that throws stays "running" in the journal: it never ended.
  template <class Fn>
  void note(std::string_view op, int64_t bytes, int peer, Fn&& fn) {
    const int64_t ticket = begin(op, bytes, peer);
    fn();
    finish(ticket);
  }

 private:
  CommJournal* journal_;
  std::string group_;
  int64_t sequence_ = 0;
};

}  // namespace longhaul
