// The control plane: small, blocking messages between ranks, for agreeing, configuring and gathering text. Tensors go
// through DeviceComm. Implementations: MpiHostComm, ThreadHostComm (ranks as threads, for tests), SelfHostComm.
//
// Collective functions are called by every rank of the communicator in the same order. A communicator is used by one
// thread at a time. Every call is noted in the journal, if there is one, under the group's name with "/host" appended.
// Failures throw CommError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "comm/comm_journal.h"

namespace longhaul {

class DeviceComm;
struct DeviceCommOptions;

class HostComm {
 public:
  // Which rank of how many, here and on this node.
  struct Place {
    int rank = 0;
    int size = 1;
    int local_rank = 0;  // among this communicator's ranks on this node
    int local_size = 1;
  };
  using Bytes = std::vector<std::byte>;

  virtual ~HostComm() = default;
  HostComm(const HostComm&) = delete;
  HostComm& operator=(const HostComm&) = delete;

  [[nodiscard]] int rank() const noexcept { return place_.rank; }
  [[nodiscard]] int size() const noexcept { return place_.size; }
  [[nodiscard]] int local_rank() const noexcept { return place_.local_rank; }
  [[nodiscard]] int local_size() const noexcept { return place_.local_size; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] CommJournal* journal() const noexcept { return writer_.journal(); }

  // --- collective ---
  void barrier();
  // The bytes of rank `root` on all ranks; `data` has the same length everywhere.
  void broadcast_bytes(std::span<std::byte> data, int root);
  // Every rank's bytes, by rank; lengths may differ, also be zero.
  [[nodiscard]] std::vector<Bytes> all_gather_bytes(std::span<const std::byte> mine);
  // Ranks that give the same color form a new communicator, ordered by key, then by rank here.
  [[nodiscard]] std::unique_ptr<HostComm> split(int color, int key, std::string name);
  // True on all ranks when `mine` is true on all ranks.
  [[nodiscard]] bool agree(bool mine);
  // True on all ranks when `mine` is true on at least one.
  [[nodiscard]] bool any(bool mine);

  // The data plane for CPU tensors between the ranks of this communicator, on channels of its own. Collective.
  [[nodiscard]] virtual std::unique_ptr<DeviceComm> make_cpu_device_comm(DeviceCommOptions options) = 0;

  // --- point to point; tag in [0, kMaxTag] ---
  static constexpr int kMaxTag = 32000;  // MPI guarantees 32767; the rest is for this library's own messages
  // May block until the peer receives.
  void send_bytes(std::span<const std::byte> data, int peer, int tag);
  // The peer must have sent exactly data.size() bytes.
  void recv_bytes(std::span<std::byte> data, int peer, int tag);

  // --- values and strings ---
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void broadcast_value(T& value, int root) {
    broadcast_bytes(std::as_writable_bytes(std::span(&value, 1)), root);
  }
  // Resizes `text` on the other ranks.
  void broadcast_string(std::string& text, int root);
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::vector<T> all_gather_value(const T& mine) {
    const std::vector<Bytes> parts = all_gather_bytes(std::as_bytes(std::span(&mine, 1)));
    std::vector<T> values(parts.size());
    for (size_t r = 0; r < parts.size(); ++r) {
      LH_CHECK(parts[r].size() == sizeof(T), "rank {} gave {} bytes, wanted {}", r, parts[r].size(), sizeof(T));
      std::memcpy(&values[r], parts[r].data(), sizeof(T));
    }
    return values;
  }
  [[nodiscard]] std::vector<std::string> all_gather_strings(std::string_view mine);

 protected:
  HostComm(const Place& place, std::string name, CommJournal* journal)
      : place_(place), name_(std::move(name)), writer_(journal, name_ + "/host") {}

 private:
  virtual void do_barrier() = 0;
  virtual void do_broadcast(std::span<std::byte> data, int root) = 0;
  [[nodiscard]] virtual std::vector<Bytes> do_all_gather(std::span<const std::byte> mine) = 0;
  [[nodiscard]] virtual std::unique_ptr<HostComm> do_split(int color, int key, std::string name) = 0;
  virtual void do_send(std::span<const std::byte> data, int peer, int tag) = 0;
  virtual void do_recv(std::span<std::byte> data, int peer, int tag) = 0;
  void expect_peer(std::string_view op, int peer) const;

  Place place_;
  std::string name_;
  JournalWriter writer_;
};

}  // namespace longhaul
