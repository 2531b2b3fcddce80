// See comm_journal.h.
#include "comm/comm_journal.h"

#include <algorithm>

#include "base/cast.h"

namespace longhaul {

CommJournal::CommJournal(int64_t capacity) {
  LH_CHECK(capacity > 0, "a journal of {} entries cannot hold anything", capacity);
  ring_.resize(narrow<size_t>(capacity));
}

int64_t CommJournal::begin(Entry entry) {
  const std::lock_guard lock(mutex_);
  entry.ticket = next_ticket_++;
  const int64_t ticket = entry.ticket;
  ring_[static_cast<size_t>(ticket) % ring_.size()] = std::move(entry);
  return ticket;
}

void CommJournal::finish(int64_t ticket) {
  const std::lock_guard lock(mutex_);
  Entry& entry = ring_[static_cast<size_t>(ticket) % ring_.size()];
  if (entry.ticket == ticket) {
    entry.finished = true;
  }
}

std::vector<CommJournal::Entry> CommJournal::entries() const {
  std::vector<Entry> found;
  {
    const std::lock_guard lock(mutex_);
    std::copy_if(ring_.begin(), ring_.end(), std::back_inserter(found), [](const Entry& e) { return e.ticket > 0; });
  }
  std::sort(found.begin(), found.end(), [](const Entry& a, const Entry& b) { return a.ticket < b.ticket; });
  return found;
}

std::string CommJournal::describe(int64_t count) const {
  const std::vector<Entry> all = entries();
  const auto first = static_cast<size_t>(std::max<int64_t>(0, narrow<int64_t>(all.size()) - count));
  std::string text;
  for (size_t i = first; i < all.size(); ++i) {
    const Entry& entry = all[i];
    const std::string peer = entry.peer >= 0 ? fmt::format(" peer {}", entry.peer) : std::string();
    text += fmt::format("  {} {}#{}{} {} bytes ({})\n", entry.op, entry.group, entry.sequence, peer, entry.bytes,
                        entry.finished ? "done" : "running");
  }
  return text.empty() ? "  no communication yet\n" : text;
}

int64_t JournalWriter::begin(std::string_view op, int64_t bytes, int peer) {
  ++sequence_;
  if (journal_ == nullptr) {
    return 0;
  }
  return journal_->begin({.op = op, .group = group_, .sequence = sequence_, .bytes = bytes, .peer = peer});
}

void JournalWriter::finish(int64_t ticket) {
  if (journal_ != nullptr) {
    journal_->finish(ticket);
  }
}

}  // namespace longhaul
