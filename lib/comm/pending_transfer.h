// A send or receive under way. wait() before the memory is used again. A transfer that is dropped without wait() is
// abandoned without blocking, which is right only on the way to ending the job: waiting for a peer that will never
// answer would turn an error into a hang.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/comm_journal.h"

namespace longhaul {

// What an implementation keeps of a transfer. The destructor abandons what is unfinished.
class TransferState {
 public:
  virtual ~TransferState() = default;
  // Called at most once. Throws CommError.
  virtual void wait() = 0;
};

class PendingTransfer {
 public:
  PendingTransfer() = default;  // nothing under way
  PendingTransfer(std::unique_ptr<TransferState> state, CommJournal* journal, int64_t ticket)
      : state_(std::move(state)), journal_(journal), ticket_(ticket) {}

  [[nodiscard]] bool is_pending() const noexcept { return state_ != nullptr; }
  // Blocks until the memory may be used again, on a GPU by later work on the context's stream; a second call does nothing.
  // Throws CommError.
  void wait() {
    if (state_ == nullptr) {
      return;
    }
    const std::unique_ptr<TransferState> state = std::move(state_);
    state->wait();
    if (journal_ != nullptr) {
      journal_->finish(ticket_);
    }
  }

 private:
  std::unique_ptr<TransferState> state_;
  CommJournal* journal_ = nullptr;
  int64_t ticket_ = 0;
};

}  // namespace longhaul
