// See thread_host_comm.h.
#include "comm/thread_host_comm.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <tuple>

#include "base/cast.h"
#include "comm/thread_device_comm.h"

namespace longhaul {

std::unique_ptr<DeviceComm> ThreadHostComm::make_cpu_device_comm(DeviceCommOptions options) {
  ThreadHub::Seat seat = seat_;
  seat.channel += fmt::format("/device{}", ++children_);
  return std::make_unique<ThreadDeviceComm>(hub_, std::move(seat), std::move(options));
}

void ThreadHostComm::do_barrier() { static_cast<void>(hub_.exchange(seat_, ++rounds_, {})); }

void ThreadHostComm::do_broadcast(std::span<std::byte> data, int root) {
  const std::vector<Bytes> parts =
      hub_.exchange(seat_, ++rounds_, rank() == root ? std::span<const std::byte>(data) : std::span<const std::byte>());
  const Bytes& from_root = parts[static_cast<size_t>(root)];
  LH_CHECK(from_root.size() == data.size(), "broadcast in group {}: rank {} gives {} bytes, rank {} wants {}", name(), root,
           from_root.size(), rank(), data.size());
  std::copy(from_root.begin(), from_root.end(), data.begin());
}

std::vector<HostComm::Bytes> ThreadHostComm::do_all_gather(std::span<const std::byte> mine) {
  return hub_.exchange(seat_, ++rounds_, mine);
}

std::unique_ptr<HostComm> ThreadHostComm::do_split(int color, int key, std::string child_name) {
  struct Choice {
    int color, key, rank;
  };
  const Choice mine{.color = color, .key = key, .rank = rank()};
  std::vector<Choice> members;
  for (const Bytes& part : hub_.exchange(seat_, ++rounds_, std::as_bytes(std::span(&mine, 1)))) {
    Choice choice{};
    std::memcpy(&choice, part.data(), sizeof(choice));
    if (choice.color == color) {
      members.push_back(choice);
    }
  }
  std::sort(members.begin(), members.end(),
            [](const Choice& a, const Choice& b) { return std::tie(a.key, a.rank) < std::tie(b.key, b.rank); });
  const auto place = std::find_if(members.begin(), members.end(), [&](const Choice& c) { return c.rank == rank(); });
  ThreadHub::Seat seat{.channel = fmt::format("{}/split{}.{}", seat_.channel, ++children_, color),
                       .rank = narrow<int>(place - members.begin()),
                       .size = narrow<int>(members.size())};
  return std::make_unique<ThreadHostComm>(hub_, std::move(seat), std::move(child_name), journal());
}

void ThreadHostComm::do_send(std::span<const std::byte> data, int peer, int tag) {
  hub_.post(seat_.channel, {.from = rank(), .to = peer, .tag = tag}, data);
}

void ThreadHostComm::do_recv(std::span<std::byte> data, int peer, int tag) {
  const Bytes letter = hub_.take(seat_.channel, {.from = peer, .to = rank(), .tag = tag});
  if (letter.size() != data.size()) {
    throw CommError("rank {} sent {} bytes where {} were wanted (tag {})", peer, letter.size(), data.size(), tag);
  }
  std::copy(letter.begin(), letter.end(), data.begin());
}

void run_ranks(int size, const std::function<void(HostComm&, int)>& fn, std::chrono::milliseconds limit) {
  LH_CHECK(size > 0, "cannot run {} ranks", size);
  ThreadHub hub(limit);
  std::vector<std::exception_ptr> causes(static_cast<size_t>(size));
  std::vector<std::exception_ptr> consequences(static_cast<size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          ThreadHostComm host(hub, {.channel = "world", .rank = rank, .size = size}, "world");
          fn(host, rank);
        } catch (const PeerFailedError&) {
          consequences[static_cast<size_t>(rank)] = std::current_exception();
          hub.fail();
        } catch (...) {
          causes[static_cast<size_t>(rank)] = std::current_exception();
          hub.fail();
        }
      });
    }
  }
  for (const auto& failures : {causes, consequences}) {
    for (const std::exception_ptr& failure : failures) {
      if (failure != nullptr) {
        std::rethrow_exception(failure);
      }
    }
  }
}

}  // namespace longhaul
