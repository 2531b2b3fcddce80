// Messages between communicators of one process: bytes posted under (from, to, tag) are taken once, in order. Posting
// copies, so it never waits. Not synchronised; ThreadHub locks around it.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

namespace longhaul {

class Mailbox {
 public:
  struct Key {
    int from = 0;
    int to = 0;
    int tag = 0;

    friend auto operator<=>(const Key&, const Key&) = default;
  };

  void post(const Key& key, std::span<const std::byte> data) { letters_[key].emplace_back(data.begin(), data.end()); }
  // The oldest message, or nothing.
  [[nodiscard]] std::optional<std::vector<std::byte>> take(const Key& key) {
    const auto found = letters_.find(key);
    if (found == letters_.end() || found->second.empty()) {
      return std::nullopt;
    }
    std::vector<std::byte> data = std::move(found->second.front());
    found->second.pop_front();
    return data;
  }

 private:
  std::map<Key, std::deque<std::vector<std::byte>>> letters_;
};

}  // namespace longhaul
